#!/usr/bin/env bash
# METEOR 1.5 takes words for the same if Java's 32-bit hash of them is.
#
# Seen with: pycocoevalcap 1.2 (its METEOR 1.5), Java 17.
# A good guess: two words match exactly if they are spelt alike.
# What is seen: in Russian a bullet matches a puma and a share matches at home, each with the
# full score 1.0: the hash is 31 h + c, and the last letters of these pairs are 31 apart, which Latin
# letters of one case never are.
# It matters to: METEOR of languages in Cyrillic, and to whoever compares with it.
# What we do: words are compared by the same hash.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check --no-deps pycocoevalcap==1.2
"$work/venv/bin/python" - <<'PY'
import glob
import subprocess
import sys

(jar,) = glob.glob(f"{sys.prefix}/lib/python*/site-packages/pycocoevalcap/meteor/meteor-1.5.jar")
pairs = [("пуля", "пума"), ("доля", "дома"), ("пуля", "пули"), ("пуля", "река")]
lines = "".join(f"SCORE ||| {a} ||| {b}\n" for a, b in pairs)
command = ["java", "-Dfile.encoding=UTF-8", "-jar", jar, "-", "-", "-stdio", "-l", "ru"]
command += ["-m", "exact"]
done = subprocess.run(command, input=lines.encode(), capture_output=True).stdout.decode()
exact = [int(float(answer.split()[4])) for answer in done.splitlines()]
print("words that match exactly:", dict(zip(pairs, exact, strict=True)))
assert exact == [1, 1, 0, 0], exact
PY
