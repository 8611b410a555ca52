#!/usr/bin/env bash
# ICU's word breaker cuts Shan, and any language in Burmese letters, by its dictionary of Burmese.
#
# Seen with: icu4py 1.2.0 (ICU inside).
# A good guess: the locale chooses the dictionary, and a language without one is cut at spaces.
# What is seen: the locales shn (Shan), my (Burmese) and even en cut a Shan word alike, in its middle.
# What we do: Shan, Mon, and Tai languages with scripts of their own are captioned by characters.
# It matters to: whoever hands text to a breaker by its language's code.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check icu4py==1.2.0
"$work/venv/bin/python" - <<'PY'
from icu4py.breakers import WordBreaker

word = "ၼိုင်ႈ"  # one
seen = {locale: list(WordBreaker(word, locale)) for locale in ("shn", "my", "en")}
print(seen)
assert len({tuple(cut) for cut in seen.values()}) == 1 and len(seen["shn"]) > 1, seen
PY
