#!/usr/bin/env bash
# jieba finds most of its words with Latin letters, such as T恤 (T-shirt), in capitals only.
#
# Seen with: jieba 0.42.1.
# A good guess: letter case does not matter to a Chinese segmenter, so captions are made small first.
# What is seen: T恤 is one word; t恤 falls apart into t and 恤.
# What we do: captions are cut in capitals and made small afterwards.
# It matters to: scores over words of captions in small letters, as all of ours are.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check jieba==0.42.1 setuptools==80.9.0
"$work/venv/bin/python" -W ignore - <<'PY'
import logging

import jieba

jieba.setLogLevel(logging.ERROR)
seen = {text: jieba.lcut(text) for text in ("穿红色T恤的男人", "穿红色t恤的男人")}
print(*seen.values(), sep="\n")
assert [len(words) for words in seen.values()] == [5, 6], seen
PY
