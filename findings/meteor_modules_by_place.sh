#!/usr/bin/env bash
# METEOR 1.5 weighs the modules of `-m` by their place, not by their name.
#
# Seen with: pycocoevalcap 1.2 (its METEOR 1.5, English), Java 17.
# A good guess: `-m "exact synonym"` leaves stems and paraphrases out, and a synonym keeps the weight
# 0.8 that it has in the default `exact stem synonym paraphrase` (1.0 0.6 0.8 0.6).
# What is seen: it takes the second weight, that of stems: `the kid builds` for `the child builds`
# has 0.83 instead of 0.91. With `-w "1.0 0.8"` it has 0.91 again.
# It matters to: whoever leaves a module out of the middle, such as in languages whose jar has
# paraphrases but no stems: the score changes although the same words match.
# What we do: modules are left out from the end alone, `exact stem` or `exact`, so places and names
# agree; the weights in the score are those of the names.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check pycocoevalcap==1.2
"$work/venv/bin/python" - "$work" <<'PY'
import re
import subprocess
import sys
from pathlib import Path

from pycocoevalcap.meteor import meteor

jar = Path(meteor.__file__).with_name(meteor.METEOR_JAR)
caption, reference = (Path(sys.argv[1], name) for name in ("caption", "reference"))
caption.write_text("the kid builds\n")
reference.write_text("the child builds\n")


def score(*options):
    command = ["java", "-jar", jar, caption, reference, "-l", "en", "-norm", *options]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return round(float(re.search(r"Final score:\s+(\S+)", said)[1]), 2)


seen = {
    "exact stem synonym paraphrase": score(),
    "exact stem synonym": score("-m", "exact stem synonym"),
    "exact synonym": score("-m", "exact synonym"),
    "exact synonym, 1.0 0.8": score("-m", "exact synonym", "-w", "1.0 0.8"),
}
print(seen)
assert list(seen.values()) == [0.91, 0.91, 0.83, 0.91], seen
PY
