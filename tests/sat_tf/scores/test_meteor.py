"""METEOR against its own program where there is Java, and by hand."""

import gzip
import shutil
import zipfile
import zlib

import numpy as np
import pytest

from sat_tf.scores import meteor_words
from sat_tf.scores.meteor_scoring import ENGLISH, Match, Meteor, align, meteor_scores, tables_of
from sat_tf.scores.meteor_words import TablesError, java_hash, split_english
from tests.sat_tf.scores.java_programs import jar_statistics
from training.evaluation.scores import paired_over_seeds, score_captions, score_interval

# Caption, references: one thing that METEOR treats apart in each.
PAIRS = [
    ("a dog runs across the grass", ["a dog runs across the grass", "a cat"]),  # one chunk
    ("the cat sat on the mat", ["on the mat sat the cat"]),  # all matched, several chunks
    ("dogs running and jumped", ["a dog runs and jumps", "dogs jump"]),  # stems
    ("a kid builds a fortress at the seaside", ["the child builds a castle at the beach"]),
    ("a large automobile near a house", ["a big car close to a home", "a car in front of it"]),
    ("the man is looking at the picture", ["the man takes a look at the photo"]),  # paraphrases
    ("a bird", ["a small black bird sits all alone on a wire", "birds"]),  # much too short
    ("a a a a bird bird of of the", ["a bird"]),  # much too long
    ("xyz", ["a house"]),  # nothing matches
    ("", ["a cat", "two cats"]),
    ("a cat", [""]),
    ("", [""]),
    ("mr. o'neil 's t-shirt costs $ 3,000 . ...", ["a u.s. shirt , isn 't it - 3000 's x.y. 'em"]),
    ("a caf\u00e9 \u4e00 \u201cnow\u201d", ["the \u2013 caf\u00e9\u00a0here \u00d7 ``now''"]),
]
needs_java = pytest.mark.skipif(shutil.which("java") is None, reason="needs Java")


def hard_pairs(count):
    """Long texts of few words, with many alignments that are as good."""
    rng = np.random.default_rng(0)
    words = "a a the the of in on man boy child kid dog dogs puppy runs running next to beside"
    texts = [" ".join(rng.choice(words.split(), rng.integers(12, 30))) for _ in range(2 * count)]
    return texts[:count], [[text] for text in texts[count:]]


@needs_java
@pytest.mark.slow
@pytest.mark.usefixtures("meteor_cache")
def test_statistics_are_those_of_the_program():
    captions, references = zip(*PAIRS, strict=True)
    hard = hard_pairs(300)
    captions, references = [*captions, *hard[0]], [*references, *hard[1]]
    found = Meteor().statistics(captions, references)
    expected = jar_statistics(captions, references)
    np.testing.assert_array_equal(found, expected)
    assert (found[:, 4:20:4].sum(axis=0) > 0).all()  # every module has found something


@needs_java
@pytest.mark.slow
@pytest.mark.usefixtures("meteor_cache")
@pytest.mark.parametrize(
    ("language", "pairs"),
    [
        ("de", "ein hund läuft/hunde laufen/die erkenntnisse/das ergebnis"),
        ("fr", "deux chiens courent/le chien court/un canoë/les canoës naïfs"),
        ("es", "dos perros corren/un perro corre"),
        ("cs", "pes běží/psi běží"),
        ("fi", "lasten koirien vesiin/lapsi koira vesi voitaisiin asioiden"),
        ("hu", "őket nőkből/nők női tűnik"),
        ("ru", "две собаки бегут всё ещё/собака бежит все еще/пуля доля/пума дома"),
        ("pt-BR", "dois cachorros correm/um cachorro corre/revolução/revoluções"),
        ("sv", "två hundar/en hund"),
        ("ar", "كلب أسود يركض/الكلاب السوداء"),
        ("hi", "एक कुत्ता/एक"),
    ],
)
def test_other_languages_are_those_of_the_program(language, pairs):
    texts, tables = pairs.split("/"), tables_of(language)
    captions = [text for text in texts for _ in texts]
    references = [[text] for text in texts] * len(texts)
    found = Meteor(language).statistics(captions, references)
    if language == "ar":
        captions, references = ["klb"], [["AlklAb"]]
        assert found[0, 1] == 3
        found = Meteor(language).statistics(captions, references)
    np.testing.assert_array_equal(found, jar_statistics(captions, references, tables))


@pytest.mark.slow
@pytest.mark.usefixtures("meteor_cache")
def test_the_interval_is_that_of_the_score():
    rng = np.random.default_rng(0)
    words = ["a", "red", "blue", "small", "large", "circle", "square", "near", "the", "left", "of"]
    ids = [str(i) for i in range(60)]
    references = {i: [" ".join(rng.choice(words, 8)) for _ in range(2)] for i in ids}
    better = {i: r[0] if int(i) % 2 else "a circle" for i, r in references.items()}
    worse = {i: "a red circle near the left" for i in ids}
    a, b = (score_captions(captions, references) for captions in (better, worse))
    interval = score_interval(a, "meteor")
    assert interval.difference == pytest.approx(a.scores["meteor"], abs=1e-9)
    assert interval.low < interval.difference < interval.high
    # The mean over images is another figure altogether.
    assert abs(a.per_image["meteor"].mean() - interval.difference) > 1
    paired = paired_over_seeds([a], [b], "meteor")
    assert paired.difference == pytest.approx(a.scores["meteor"] - b.scores["meteor"])
    assert 0 < paired.low < paired.difference < paired.high


def row(**counts) -> np.ndarray:
    """A row of statistics: eight words, four functional, on either side, as given."""
    values = np.zeros(23)
    values[:4] = 8, 8, 4, 4
    for name, count in counts.items():
        values[int(name[1:])] = count
    return values


def test_the_formula_by_hand():
    # Two content words matched exactly, one by its stem, in one chunk: weights 1 and 0.6, 0.75.
    values = row(_4=2, _5=2, _8=1, _9=1, _20=1, _21=3, _22=3)
    share = 0.75 * 2.6 / (0.75 * 4 + 0.25 * 4)
    expected = 100 * share * (1 - 0.6 * (1 / 3) ** 0.2)
    assert meteor_scores(values) == pytest.approx(expected)
    assert meteor_scores(np.stack([values, row()])) == pytest.approx([expected, 0])
    assert meteor_scores(5 * values) == pytest.approx(expected)


def test_a_lone_stem_that_would_be_a_chunk_of_its_own_is_left_out():
    exact, stem = Match(0, 0, 1, 0, 1, 2), Match(1, 2, 3, 2, 3, 0)
    assert align([[exact], [], [stem]]) == [exact, stem]  # nothing to decide
    twice = [[exact], [], [stem, stem._replace(module=2)]]
    assert align(twice) == [exact]
    next_to_it = stem._replace(start=1, end=2, own_start=1, own_end=2)
    assert align([[exact], [next_to_it, next_to_it._replace(module=2)]]) == [exact, next_to_it]


def test_words_with_the_same_hash_are_the_same_word():
    assert java_hash("пуля") == java_hash("пума") != java_hash("пули")
    assert Meteor("ru").scores(["пуля летит"], [["пума летит"]]).tolist() == [100.0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a t-shirt", "a t shirt"),
        ("the u.s. army", "the us army"),
        ("it 's a man's", "it ' s a man 's"),
        ("3,000 a,b", "3,000 a , b"),
        ("wait ... no.", "wait ... no ."),
    ],
)
def test_english_is_split_as_its_normaliser_does(text, words, monkeypatch):
    monkeypatch.setattr("sat_tf.scores.meteor_words.prefixes", dict)
    assert split_english(text) == words.split()


@pytest.fixture
def small_tables(tmp_path, monkeypatch):
    """A pycocoevalcap with a few words, and another cache."""
    tables = {
        "function/english.words": "a\nthe\n",
        "synonym/english.synsets": "big\n1 2\nlarge\n2\nmouse\n7\nrat\n7\n",
        "synonym/english.exceptions": "mouse\nmice\n",
        "nonbreaking/english.prefixes": "# names\nMr\nNo #NUMERIC_ONLY#\n",
    }
    folder = tmp_path / "pycocoevalcap" / "meteor"
    (folder / "data").mkdir(parents=True)
    paraphrases = gzip.compress(b"0.1\nnext to\nbeside\n0.1\nnext to\nby\n0.2\nplay\nhave fun\n")
    (folder / "data" / "paraphrase-en.gz").write_bytes(paraphrases)
    with zipfile.ZipFile(folder / "meteor-1.5.jar", "w") as jar:
        for name, text in tables.items():
            jar.writestr(name, text)
    known = {name: zlib.crc32(text.encode()) for name, text in tables.items() if "." in name}
    known["paraphrase-en.gz"] = int.from_bytes(paraphrases[-8:-4], "little")
    monkeypatch.setattr(meteor_words, "ENGLISH_TABLES", known)
    monkeypatch.setattr(meteor_words, "installed", lambda: folder)
    monkeypatch.setenv("SAT_TF_CACHE", str(tmp_path / "cache"))
    return folder


def modules(caption, reference) -> list[int]:
    """Matched words of the reference by module, content words first."""
    counts = Meteor().statistics([caption], [[reference]])[0, 5:20:2].reshape(4, 2)
    return counts.sum(axis=1).astype(int).tolist()


def test_each_module_matches_by_its_table(small_tables):
    assert modules("a dog", "a dog") == [2, 0, 0, 0]
    assert modules("dogs run", "dog run") == [1, 1, 0, 0]
    assert modules("a big dog", "a large dog") == [2, 0, 1, 0]
    assert modules("a rat eats", "a mice eats") == [2, 0, 1, 0]  # by its base form
    for pair in (("men next to it", "men beside it"), ("men beside it", "men next to it")):
        assert modules(*pair)[0] == 2 and modules(*pair)[3] == len(pair[1].split()) - 2
    kept = Meteor()
    (small_tables / "meteor-1.5.jar").unlink()  # the index is enough for all but function words
    assert kept.scores(["play"], [["have fun"]]) > 0


def test_a_caption_is_grounded_if_each_content_word_matches_some_reference(small_tables):
    references = ["a large dog", "the mice run", "men beside it"]
    right = ["a big dog runs", "the rat", "men next to it", "a dog beside the mouse"]
    wrong = ["a red dog", "a dog beside a cat", "the", ""]
    pairs = [references] * (len(right) + len(wrong))
    assert Meteor().grounded(right + wrong, pairs).tolist() == [True] * 4 + [False] * 4


def test_tables_of_another_version_or_missing_ones_are_errors(small_tables, monkeypatch):
    (small_tables / "data" / "paraphrase-en.gz").write_bytes(gzip.compress(b"other"))
    with pytest.raises(TablesError, match="paraphrase-en.gz .* is not that of version 1.5"):
        Meteor()
    (small_tables / "data" / "paraphrase-en.gz").unlink()
    with pytest.raises(TablesError, match="paraphrases are missing"):
        Meteor()
    monkeypatch.undo()
    monkeypatch.setattr(meteor_words, "find_spec", lambda name: None)
    meteor_words.installed.cache_clear()
    with pytest.raises(TablesError, match="not installed: `pip install pycocoevalcap`"):
        Meteor()


def test_a_language_without_tables_matches_equal_words():
    assert tables_of("xx").modules == ("exact",) != ENGLISH.modules
    assert Meteor("hi").scores(["एक कुत्ता"], [["एक कुत्ता"]]).tolist() == [100.0]
