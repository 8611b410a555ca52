"""Subwords: SentencePiece finds the pieces of whole characters that make up the words."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping

from sat_tf.errors import invalid_value
from sat_tf.tokens import LONGEST, MARK, missing_extra, split_clusters, split_subwords

SIZE = 4000
"""Subwords of a vocabulary by default."""


def learn_subwords(words: Counter[str], min_count: int, size: int | None = None) -> Counter[str]:
    """Finds subwords by byte pair encoding of words, in units of grapheme clusters.

    Args:
        words: Word -> how often the training captions have it.
        min_count: Subwords that occur fewer times are taken apart again; single characters stay.
        size: The most subwords; `SIZE` by default. All single characters are among them.

    Returns:
        Subword -> how often it occurs when words are split.

    Raises:
        ImportError: SentencePiece is not installed.

    References:
        Sennrich et al. (2016), arXiv:1508.07909; Kudo and Richardson (2018), arXiv:1808.06226.
    """
    if package := missing_extra("subwords"):
        raise ImportError(
            f'`--data.tokens subwords` needs {package}: `pip install "sat-tf[subwords]"`.'
        )
    import sentencepiece

    spelled = {word: split_clusters(word) for word in words}
    clusters = sorted({cluster for word in spelled.values() for cluster in word})
    size, fewest = size or max(SIZE, 2 * len(clusters)), len(clusters) + 2
    if size < fewest:
        expected = f"at least {fewest}, as the captions have so many characters"
        raise invalid_value("--data.vocabulary_size", expected, size, "key")
    # SentencePiece merges code points: one of a private plane stands for each cluster.
    codes = {cluster: chr(0xF0000 + n) for n, cluster in enumerate(clusters)}
    names = {code: cluster for cluster, code in codes.items()} | {MARK: MARK}
    lines = ("".join(codes[c] for c in spelled[word]) + f"\t{n}" for word, n in words.items())
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines,
        input_format="tsv",
        model_writer=model,
        model_type="bpe",
        vocab_size=size + 1,  # its <unk>
        hard_vocab_limit=False,
        character_coverage=1.0,
        max_sentencepiece_length=LONGEST,
        normalization_rule_name="identity",
        split_by_unicode_script=False,
        split_by_number=False,
        bos_id=-1,
        eos_id=-1,
        num_threads=1,
        minloglevel=2,
    )
    found = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    pieces = [found.id_to_piece(n) for n in range(1, found.get_piece_size())]
    single = dict.fromkeys([MARK, *clusters], 0)
    known = single | {"".join(names[code] for code in piece): 0 for piece in pieces}
    counts = _count(words, known)
    counts = _count(words, {p: 0 for p in known if p in single or counts[p] >= min_count})
    return counts + Counter({piece: 1 for piece in single if piece not in counts})


def _count(words: Counter[str], known: Mapping[str, int]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for word, times in words.items():
        for piece in split_subwords(word, known):
            counts[piece] += times
    return counts
