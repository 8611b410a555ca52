#!/usr/bin/env bash
# METEOR 1.5 gives a synonym nothing if it is the whole caption, and 0.85 after an article.
#
# Seen with: pycocoevalcap 1.2 (its METEOR 1.5, English), Java 17.
# A good guess: `bike` for `bicycle` scores about as well as `a bike` for `a bicycle`.
# What is seen: 0.0 and 0.85. A perfect one-word caption still has 1.0.
# It matters to: captions of one word (tags, products), whose METEOR is their share of exact words.
# What we do: the guide to metrics warns of it.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check pycocoevalcap==1.2
"$work/venv/bin/python" - <<'PY'
from pycocoevalcap.meteor.meteor import Meteor

meteor = Meteor()


def score(caption, reference):
    return meteor.compute_score({0: [reference]}, {0: [caption]})[0]


seen = [score("bike", "bicycle"), score("a bike", "a bicycle"), score("bicycle", "bicycle")]
meteor.meteor_p.kill()
print("bike, a bike, bicycle:", [round(value, 3) for value in seen])
assert [round(value, 3) for value in seen] == [0.0, 0.85, 1.0], seen
PY
