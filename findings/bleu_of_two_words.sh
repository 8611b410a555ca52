#!/usr/bin/env bash
# BLEU-4 of a perfect two-word caption is 0.001, 0 or 1, by the tool and its switch.
#
# Seen with: pycocoevalcap 1.2, sacrebleu 2.6.0.
# A good guess: all tools agree on a caption that equals its reference, or call BLEU-4 undefined.
# What is seen: pycocoevalcap 0.001 (a constant that keeps a quotient from being 0/0, to the fourth
# root), sacrebleu 0.0 for a corpus and 100.0 with effective_order, which leaves out the n-grams
# that the caption is too short for.
# It matters to: data of short captions: the figure is the tool's constant, not a measurement.
# What we do: a BLEU-4 without a matched n-gram of four words is shown as undefined.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check pycocoevalcap==1.2 sacrebleu==2.6.0
"$work/venv/bin/python" - <<'PY'
from pycocoevalcap.bleu.bleu import Bleu
from sacrebleu.metrics import BLEU

text = "red car"
coco = Bleu(4).compute_score({0: [text]}, {0: [text]}, verbose=0)[0][3]
corpus = BLEU().corpus_score([text], [[text]]).score
effective = BLEU(effective_order=True).sentence_score(text, [text]).score
print("pycocoevalcap:", coco, "sacrebleu:", corpus, "with effective_order:", effective)
assert 0.0009 < coco < 0.0011, coco
assert corpus == 0.0 and round(effective, 6) == 100.0, (corpus, effective)
PY
