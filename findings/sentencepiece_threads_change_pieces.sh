#!/usr/bin/env bash
# sentencepiece's unigram pieces depend on the number of threads that train them; byte pairs do not.
#
# Seen with: sentencepiece 0.2.3.
# A good guess: num_threads changes the time, not the model.
# What is seen: with 1 and 16 threads (16 is the default), the pieces of the default model, unigram,
# differ or have other scores; with the same number they are equal. model_type=bpe is equal in both.
# It matters to: vocabularies that are made again on another machine.
# What we do: we use byte pairs.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check sentencepiece==0.2.3
"$work/venv/bin/python" - <<'PY'
import io

import sentencepiece

captions = [
    "a dog runs on the grass 3.5 m",
    "two men ride bikes",
    "the red boat at sea 50%",
    "สุนัขกำลังวิ่งบนหญ้า",
    "一只狗在草地上跑",
    "кошка спит на стене",
] * 40


def pieces(kind, threads):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(captions),
        model_writer=model,
        model_type=kind,
        num_threads=threads,
        vocab_size=150,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    found = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    return [(found.id_to_piece(i), found.get_score(i)) for i in range(len(found))]


for kind, equal in (("unigram", False), ("bpe", True)):
    one, again, many = pieces(kind, 1), pieces(kind, 1), pieces(kind, 16)
    print(f"{kind}: twice by one thread {one == again}; by one and by sixteen {one == many}")
    assert one == again and (one == many) is equal
PY
