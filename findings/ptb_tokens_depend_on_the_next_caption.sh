#!/usr/bin/env bash
# The PTB tokens of a caption depend on the caption of the next image.
#
# Seen with: pycocoevalcap 1.2 (its Stanford PTBTokenizer), Java 17.
# A good guess: with `-preserveLines` each line is a text of its own.
# What is seen: `a boy takes vitamin c.` ends with the token `c.` if `people run` is next, and with
# `c` if `The people run` is: a letter with a full stop is an abbreviation unless a sentence begins
# after it, and the program looks for that beyond the end of the line.
# It matters to: scores of the same captions in another order, or of a part of them.
# What we do: a caption ends where it ends, so that the first of both holds.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check --no-deps pycocoevalcap==1.2
"$work/venv/bin/python" - <<'PY'
from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

seen = []
for after in ("people run", "The people run"):
    captions = {0: [{"caption": "a boy takes vitamin c."}], 1: [{"caption": after}]}
    seen.append(PTBTokenizer().tokenize(captions)[0][0])
    print(f"before {after!r}: {seen[-1]}")
assert seen == ["a boy takes vitamin c.", "a boy takes vitamin c"], seen
PY
