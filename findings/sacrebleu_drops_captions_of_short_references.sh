#!/usr/bin/env bash
# sacrebleu scores only as many captions as the shortest list of references is long, and says nothing.
#
# Seen with: sacrebleu 2.6.0.
# A good guess: lists of references that are shorter than that of the captions are an error, since
# an image without a second reference has to be marked by None.
# What is seen: with a second list that stops early, the captions after its end are not scored; the
# BLEU of two captions, one hopeless, is 100. With None in its place it is 59.7.
# It matters to: sets whose images have different numbers of captions.
# What we do: we score these with pycocoevalcap's arithmetic, image by image.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check sacrebleu==2.6.0
"$work/venv/bin/python" - <<'PY'
import sacrebleu

captions = ["a dog runs on grass", "x y z w"]
first = ["a dog runs on grass", "q r s t"]
short = sacrebleu.corpus_bleu(captions, [first, ["dogs run"]])
marked = sacrebleu.corpus_bleu(captions, [first, ["dogs run", None]])
print(f"a short second list: {short}\nthe same with None: {marked}")
assert short.sys_len == 5 and round(short.score, 1) == 100.0, short
assert marked.sys_len == 9 and round(marked.score, 1) == 59.7, marked
PY
