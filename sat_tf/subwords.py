"""Subwords: SentencePiece finds the pieces of whole characters that make up the words."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Container

import numpy as np

from sat_tf.joining import MARK, byte_token, has_closed
from sat_tf.tokens import check_extra, split_clusters
from sat_tf.util.errors import invalid_value

LONGEST = 16
"""Most characters of a subword, its mark among them."""
LONGEST_CLOSED = 4
"""The same in scripts without spaces, where longer ones would be phrases."""
SIZES, PER_SUBWORD = (1000, 4000), 50
"""Least and most subwords of a vocabulary by default, and the words of captions that one needs: of
1,000 images, 4,000 subwords are hardly learned."""


def learn_subwords(words: Counter[str], min_count: int, size: int | None = None) -> Counter[str]:
    """Finds subwords by byte pair encoding of words, in units of grapheme clusters.

    Args:
        words: Word -> how often the training captions have it.
        min_count: Subwords that occur fewer times are taken apart again, characters into bytes.
        size: The most subwords, without the bytes; by default one per `PER_SUBWORD` words, within
            `SIZES`, but two per character.

    Returns:
        Subword -> how often it occurs when words are split.

    Raises:
        ValueError: SentencePiece is not installed, or `size` is too small.

    References:
        Sennrich et al. (2016), arXiv:1508.07909; Kudo and Richardson (2018), arXiv:1808.06226.
    """
    check_extra("subwords", "unit")
    import sentencepiece

    if not words:
        return Counter()
    spelled = {word: split_clusters(word) for word in words}
    often: Counter[str] = Counter()
    for word, times in words.items():
        often.update(dict.fromkeys(spelled[word], times))
    clusters = sorted(often)
    seen = int(np.clip(words.total() // PER_SUBWORD, *SIZES))
    size, fewest = size or max(seen, 2 * len(clusters)), len(clusters) + 2
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
    always = [MARK, *map(byte_token, range(0x21, 0xF5))]
    always += [cluster for cluster in clusters if often[cluster] >= min_count]
    spelled_out = {piece: "".join(names[code] for code in piece) for piece in pieces}
    known = {
        text
        for piece, text in spelled_out.items()
        if len(piece.strip(MARK)) <= LONGEST_CLOSED or not has_closed(text)
    }.union(always)
    counts = _count(words, known)
    counts = _count(words, {piece for piece in known if counts[piece] >= min_count}.union(always))
    return counts + Counter(piece for piece in always if piece not in counts)


def _count(words: Counter[str], known: Container[str]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for word, times in words.items():
        for piece in split_subwords(word, known):
            counts[piece] += times
    return counts


def split_subwords(word: str, known: Container[str]) -> list[str]:
    """Splits a word into the longest known pieces of whole clusters, the first behind `MARK`.

    A cluster that is not known becomes its bytes.
    """
    clusters, pieces, first = [MARK, *split_clusters(word)], [], 0
    while first < len(clusters):
        for last in range(min(len(clusters), first + LONGEST), first, -1):
            piece = "".join(clusters[first:last])
            if piece in known:
                break
        pieces += [piece] if piece in known else [byte_token(byte) for byte in piece.encode()]
        first = last
    return pieces
