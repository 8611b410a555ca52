#!/usr/bin/env bash
# langcodes takes de-DEU, a country's three letters, for a valid language tag.
#
# Seen with: langcodes 3.5.1.
# A good guess: tag_is_valid is False, as DEU is no region (DE is) and no extension of German.
# What is seen: True. Three letters after a language are an extended language subtag, and any code
# passes for one, whatever precedes it; de-FRA, with the country's code, passes as well.
# It matters to: whoever checks by this function what people write as a language.
# What we do: a tag with an extended language is an error, which names the shorter tag if it has one.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check langcodes==3.5.1
"$work/venv/bin/python" - <<'PY'
from langcodes import standardize_tag, tag_is_valid

seen = {tag: (tag_is_valid(tag), standardize_tag(tag)) for tag in ("de-DEU", "de-FRA", "zh-yue")}
print(seen)
assert seen == {
    "de-DEU": (True, "de-deu"),
    "de-FRA": (True, "de-fra"),
    "zh-yue": (True, "yue"),
}, seen
PY
