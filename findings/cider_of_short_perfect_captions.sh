#!/usr/bin/env bash
# CIDEr-D of a perfect caption is 2.5 of 10 if it has one word, and 5 if it has two.
#
# Seen with: pycocoevalcap 1.2.
# A good guess: a caption equal to its only reference has CIDEr 10, as longer ones have.
# What is seen: CIDEr averages over n-grams of one to four words; those that the caption is too
# short for count as unmatched. And if every image has the same captions, all scores are 0.
# It matters to: data sets of short captions or tags, and validation on a handful of images.
# What we do: CIDEr stays the published one, and is undefined if all captions are alike.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check pycocoevalcap==1.2
"$work/venv/bin/python" - <<'PY'
from pycocoevalcap.cider.cider import Cider


def scores(*captions):
    each = {number: [caption] for number, caption in enumerate(captions)}
    return [round(float(value), 2) for value in Cider().compute_score(each, each)[1]]


seen = scores("dog", "red car", "three green boats", "two cats sit on mats")
print("one, two, three, five words:", seen)
assert seen == [2.5, 5.0, 7.5, 10.0], seen
alike = scores("a dog runs fast", "a dog runs fast")
print("two images with the same caption:", alike)
assert alike == [0.0, 0.0], alike
PY
