#!/usr/bin/env bash
# ICU cuts the Chinese word for bicycle in two in simplified writing, and keeps it in traditional.
#
# Seen with: PyICU-binary 2.7.4 (ICU 72.1); jieba 0.42.1 beside it.
# A good guess: a common word is in the dictionary of both forms.
# What is seen: a person rides a bicycle is cut after the first two of the word's three characters in
# simplified Chinese; the same sentence in traditional Chinese and jieba keep the word whole.
# It matters to: scores over words, which differ between the writings and between the segmenters.
# What we do: the segmenter is part of the scores' signature, and jieba can be chosen.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check PyICU-binary==2.7.4 jieba==0.42.1 setuptools==80.9.0
"$work/venv/bin/python" -W ignore - <<'PY'
import logging

import icu
import jieba

jieba.setLogLevel(logging.ERROR)


def words(text):
    breaks = icu.BreakIterator.createWordInstance(icu.Locale("zh"))
    breaks.setText(text)
    ends = list(breaks)
    return [text[start:end] for start, end in zip([0, *ends[:-1]], ends)]


simplified, traditional = words("一个人在骑自行车"), words("一個人在騎自行車")
print("ICU", icu.ICU_VERSION, simplified, traditional)
print("jieba", jieba.lcut("一个人在骑自行车"))
assert simplified[-2:] == ["自行", "车"], simplified
assert traditional[-1] == "自行車", traditional
assert jieba.lcut("一个人在骑自行车")[-1] == "自行车"
PY
