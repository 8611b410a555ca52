#!/usr/bin/env bash
# sentencepiece does not give back Thai text that has sara am, and cuts Hindi vowels from their letter.
#
# Seen with: sentencepiece 0.2.3.
# A good guess: decode(encode(text)) is the text, and a piece is made of whole written letters.
# What is seen: the default normalisation (NFKC) writes U+0E33 as two characters, which come back as
# two; with normalization_rule_name=identity they come back as one. With either, a Hindi vowel sign
# can be a piece of its own, apart from the consonant that it belongs to.
# It matters to: subwords of Thai, Lao and Indic captions: normalise outside, cut by clusters.
# What we do: that, and our own code splits words, by whole written letters.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check sentencepiece==0.2.3
"$work/venv/bin/python" - <<'PY'
import io
import unicodedata

import sentencepiece

captions = ["สุนัขกำลังวิ่งบนหญ้า", "ผู้ชายทำอาหารกับน้ำ", "कुत्ता घास पर दौड़ रहा है", "किताब की दुकान में लड़की"]
for rule, comes_back in (("nmt_nfkc", False), ("identity", True)):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(captions * 30),
        model_writer=model,
        vocab_size=80,
        hard_vocab_limit=False,
        normalization_rule_name=rule,
        minloglevel=2,
    )
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    same = pieces.decode(pieces.encode("ทำน้ำ")) == "ทำน้ำ"
    hindi = pieces.encode("किताब", out_type=str)
    marks = [piece for piece in hindi if unicodedata.category(piece[0]).startswith("M")]
    print(f"{rule}: Thai comes back: {same}; Hindi pieces {hindi}, of marks alone {marks}")
    assert same is comes_back and marks, (same, hindi)
PY
