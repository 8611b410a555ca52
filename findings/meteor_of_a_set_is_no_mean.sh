#!/usr/bin/env bash
# METEOR 1.5 of a set of captions is not the mean of the captions' scores.
#
# Seen with: pycocoevalcap 1.2 (its METEOR 1.5, English), Java 17.
# A good guess: a perfect caption (1.0) and one without a common word (0.0) have 0.5 together.
# What is seen: 0.53 if the hopeless caption has one word, 0.48 if it has eight: METEOR adds the
# counts of matches, words and chunks of all captions and scores the sums.
# It matters to: METEOR of groups or of parts of a split, which cannot be averaged to that of all.
# What we do: METEOR and its intervals are computed from the sums over images.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check pycocoevalcap==1.2
"$work/venv/bin/python" - <<'PY'
from pycocoevalcap.meteor.meteor import Meteor

meteor = Meteor()
references = {0: ["a man rides a horse on the beach"], 1: ["two dogs run through deep snow"]}
short = {0: references[0], 1: ["purple"]}
long = {0: references[0], 1: ["purple engines sleep quietly near seven tall doors"]}
seen = [meteor.compute_score(references, found) for found in (short, long)]
meteor.meteor_p.kill()
for whole, each in seen:
    print("each:", each, "together:", round(whole, 4), "mean:", sum(each) / 2)
    assert each == [1.0, 0.0], each
assert [round(whole, 2) for whole, _ in seen] == [0.53, 0.48], seen
PY
