#!/usr/bin/env bash
# jieba keeps 3.5 and 50% whole with its model of unknown words and cuts them without it.
#
# Seen with: jieba 0.42.1.
# A good guess: the switch HMM is about unknown Chinese words, and numbers stay as they are.
# What is seen: with HMM=False, 3.5 becomes three tokens and 50% two; full-width digits are cut in
# both ways.
# It matters to: scores over jieba's words, which depend on a switch that papers do not name.
# What we do: words are found with HMM=True, the default.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check jieba==0.42.1 setuptools==80.9.0
"$work/venv/bin/python" -W ignore - <<'PY'
import logging

import jieba

jieba.setLogLevel(logging.ERROR)
seen = {hmm: jieba.lcut("3.5米高的墙，50%", HMM=hmm) for hmm in (True, False)}
for hmm, tokens in seen.items():
    print(f"HMM={hmm}:", tokens)
assert seen[True][:2] == ["3.5", "米"] and seen[True][-1] == "50%", seen
assert seen[False][:4] == ["3", ".", "5", "米"] and seen[False][-2:] == ["50", "%"], seen
assert jieba.lcut("３．５米")[0] == "３"
PY
