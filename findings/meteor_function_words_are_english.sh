#!/usr/bin/env bash
# METEOR 1.5 takes the English function words for every language.
#
# Seen with: pycocoevalcap 1.2 (its METEOR 1.5), Java 17.
# A good guess: `-l de` counts `der` and `und` as function words: the jar has a list of them, and
# German's parameter for their weight is tuned.
# What is seen: of `der und in`, `in` alone is one, which is English, too; of `the of on`, all are.
# It matters to: whoever computes METEOR by its description: German scores differ by 0.4 of 100.
# What we do: the same.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check --no-deps pycocoevalcap==1.2
"$work/venv/bin/python" - <<'PY'
import glob
import subprocess
import sys
import zipfile

(jar,) = glob.glob(f"{sys.prefix}/lib/python*/site-packages/pycocoevalcap/meteor/meteor-1.5.jar")
words = zipfile.ZipFile(jar).read("function/german.words").decode().split()
assert {"der", "und", "in"} <= {*words} and not {"the", "of"} & {*words}
lines = "SCORE ||| der und in ||| der und in\nSCORE ||| the of on ||| the of on\n"
command = ["java", "-jar", jar, "-", "-", "-stdio", "-l", "de", "-m", "exact stem"]
answers = subprocess.run(command, input=lines, capture_output=True, text=True).stdout.splitlines()
seen = [int(float(answer.split()[2])) for answer in answers]
print("function words of `der und in` and of `the of on`:", seen)
assert seen == [1, 3], seen
PY
