#!/usr/bin/env bash
# One line separator inside a caption gives every later caption the tokens of its neighbour.
#
# Seen with: pycocoevalcap 1.2 (its Stanford PTBTokenizer), Java 17.
# A good guess: the wrapper replaces line feeds, so that a caption is a line and stays one.
# What is seen: it replaces the line feed alone. Java also ends a line at a carriage return, a form
# feed, a vertical tab, U+2028 and U+2029: the caption is cut there, the next image gets its rest,
# and the last image's caption is lost, without an error. U+0085 and U+00A0 do no harm.
# It matters to: scores of captions that were copied from a word processor or a web page.
# What we do: every white space inside a caption becomes a blank before Java reads it.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check pycocoevalcap==1.2
"$work/venv/bin/python" - <<'PY'
from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer


def tokens(mark):
    captions = [f"a dog{mark}runs", "two cats", "three birds"]
    each = {number: [{"caption": caption}] for number, caption in enumerate(captions)}
    return [found[0] for found in PTBTokenizer().tokenize(each).values()]


right, shifted = ["a dog runs", "two cats", "three birds"], ["a dog", "runs", "two cats"]
for name, mark, expected in (
    ("line feed", "\n", right),
    ("U+0085", "\x85", right),
    ("carriage return", "\r", shifted),
    ("vertical tab", "\x0b", shifted),
    ("form feed", "\x0c", shifted),
    ("U+2028", "\u2028", shifted),
    ("U+2029", "\u2029", shifted),
):
    found = tokens(mark)
    print(f"{name}: {found}")
    assert found == expected, found
PY
