#!/usr/bin/env bash
# tyro loads typeguard for `int | None`, and does without it for `Optional[int]`.
#
# Seen with: tyro 1.0.17, Python 3.11.
# A good guess: two spellings of one type cost the same; defaults are checked by `isinstance`.
# What is seen: its check of a default knows plain types, `Union`, `Annotated` and `Literal`; a bar
# is another type, `types.UnionType`, and goes to typeguard, which loads unittest.mock and asyncio:
# about 0.06 s of processor time, as much as tyro itself.
# It matters to: commands that should start at once.
# What we do: nothing, as our linter asks for the bar.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check tyro==1.0.17
for type in "Optional[int]" "int | None"; do
    "$work/venv/bin/python" - "$type" <<'PY'
import dataclasses
import sys
from typing import Optional  # noqa: F401

import tyro

arguments = dataclasses.make_dataclass("Arguments", [("number", eval(sys.argv[1]), None)])
assert tyro.cli(arguments, args=["--number", "3"]).number == 3
loaded = [name for name in ("typeguard", "unittest.mock", "asyncio") if name in sys.modules]
print(f"{sys.argv[1]}: loaded {', '.join(loaded) or 'none of typeguard, unittest.mock, asyncio'}")
assert bool(loaded) == ("|" in sys.argv[1])
PY
done
