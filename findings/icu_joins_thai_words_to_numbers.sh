#!/usr/bin/env bash
# A number inside Thai text switches ICU's word segmentation off around it.
#
# Seen with: icu4py 1.2.0; pythainlp 5.1.2 beside it.
# A good guess: "3.5 metres tall" without spaces has three words, the number in the middle.
# What is seen: digits hold the words on both sides together: the whole is one word. With spaces
# around the number, or without it, the words are cut as expected. Chinese and Japanese are not
# concerned: their numbers are cut off.
# It matters to: vocabularies and scores of Thai captions, whose numbers often touch their noun.
# What we do: numbers are cut off before ICU sees the text.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check icu4py==1.2.0 pythainlp==5.1.2
"$work/venv/bin/python" -W ignore - <<'PY'
from icu4py.breakers import WordBreaker
from pythainlp.tokenize import word_tokenize

touching, apart = "สูง3.5เมตร", "สูง 3.5 เมตร"
words = {text: list(WordBreaker(text, "th")) for text in (touching, apart)}
print("ICU:", words, "PyThaiNLP:", word_tokenize(touching))
assert words[touching] == [touching], words
assert words[apart] == ["สูง", " ", "3.5", " ", "เมตร"], words
assert list(WordBreaker("高3.5米", "zh")) == ["高", "3.5", "米"]
assert word_tokenize(touching) == ["สูง", "3.5", "เมตร"]
PY
