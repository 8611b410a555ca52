import json
import unicodedata

import pytest

from sat_tf.vocabulary import END, PAD, SPECIAL_TOKENS, START, UNK, Vocabulary, tokenize

CAPTIONS = ["A dog runs .", "A dog sits .", "A cat sits ."]


def vocabulary_of(*words: str, unit="words", **rest) -> Vocabulary:
    return Vocabulary(SPECIAL_TOKENS + words, unit, **rest)


@pytest.mark.parametrize(
    ("caption", "tokens"),
    [
        ("A Dog, running !", ["a", "dog", "running"]),
        ("dog.The cat/bird_fish", ["dog", "the", "cat", "bird", "fish"]),
        ("a t-shirt \u2010 a t\u2011shirt -- x--y -z-", ["a", "t-shirt"] * 2 + ["x", "y", "z"]),
        ("the man\u2019s 'red' hat", ["the", "man's", "red", "hat"]),
        ("a man 's hat , they 'll wave ' '", ["a", "man", "'s", "hat", "they", "'ll", "wave"]),
        ("2 dogs & 3 cats \U0001f415\ufe0f", ["2", "dogs", "3", "cats"]),
        ("\u00abUn caf\u00e9\u00bb \u2014 \u00bfs\u00ed?", ["un", "caf\u00e9", "s\u00ed"]),
        ("soft\u00adhyphen\u00a0wide\u3000\u6587", ["softhyphen", "wide", "\u6587"]),
        (" .,!? \t\n", []),
        ("", []),
    ],
)
def test_words_are_lower_case_without_punctuation(caption, tokens):
    assert tokenize(caption) == tokens


def test_composed_and_decomposed_letters_are_the_same_token():
    decomposed = unicodedata.normalize("NFD", "CAF\u00c9")
    assert tokenize(decomposed) == ["caf\u00e9"]
    assert tokenize("\u0130stanbul") == ["istanbul"]


@pytest.mark.parametrize("unit", ["words", "characters"])
@pytest.mark.parametrize(
    "caption", ["A man 's T-Shirt , it\u2019s 'big' !", "\u03a3\u0391\u03a3 \u0130x \u1e9e"]
)
def test_tokens_of_joined_tokens_are_the_same_tokens(caption, unit):
    tokens = tokenize(caption, unit)
    assert tokenize((" " if unit == "words" else "").join(tokens), unit) == tokens


def test_characters_lose_punctuation_and_keep_one_space_between_words():
    assert tokenize("\u72d7\uff0c\u8dd1\u3002", "characters") == ["\u72d7", "\u8dd1"]
    assert tokenize(" A  b. ", "characters") == ["a", " ", "b"]
    assert tokenize("\u0e01\u0e35\u0e32", "characters") == ["\u0e01\u0e35", "\u0e32"]


def test_special_tokens_have_fixed_ids():
    vocabulary = Vocabulary.from_captions(CAPTIONS, min_count=1)
    assert [vocabulary.words[index] for index in (PAD, START, END, UNK)] == list(SPECIAL_TOKENS)
    assert (PAD, START, END, UNK) == (0, 1, 2, 3)


def test_words_are_ordered_by_count_then_alphabet():
    vocabulary = Vocabulary.from_captions(CAPTIONS, min_count=1)
    assert vocabulary.words[4:] == ("a", "dog", "sits", "cat", "runs")
    assert Vocabulary.from_captions(CAPTIONS[::-1], min_count=1) == vocabulary


def test_rare_words_and_words_beyond_the_size_are_left_out():
    assert Vocabulary.from_captions(CAPTIONS, min_count=2).words[4:] == ("a", "dog", "sits")
    assert Vocabulary.from_captions(CAPTIONS, min_count=1, max_size=2).words[4:] == ("a", "dog")
    for arguments in ({"min_count": 0}, {"max_size": 0}):
        with pytest.raises(ValueError, match=f"`{next(iter(arguments))}`"):
            Vocabulary.from_captions(CAPTIONS, **arguments)


def test_encoding_maps_unknown_words_to_unk():
    vocabulary = vocabulary_of("a", "dog")
    assert vocabulary.encode("A dog barks .") == [4, 5, UNK]
    assert (vocabulary.id("dog"), vocabulary.id("barks"), len(vocabulary)) == (5, UNK, 6)


def test_decoding_stops_at_the_end_and_skips_pad_and_start():
    vocabulary = vocabulary_of("a", "dog")
    assert vocabulary.decode([START, 4, PAD, 5, UNK, END, 4]) == "a dog <unk>"
    assert vocabulary_of("a", "b", unit="characters").decode([4, 5]) == "ab"
    for wrong in (6, -1):
        with pytest.raises(ValueError, match=r"expected ids in \[0, 6\)"):
            vocabulary.decode([wrong])


def test_a_vocabulary_needs_the_special_tokens_and_distinct_words():
    with pytest.raises(ValueError, match="first words"):
        Vocabulary(("a", "b"))
    with pytest.raises(ValueError, match="no word twice, got \\['a'\\]"):
        vocabulary_of("a", "b", "a")


@pytest.mark.parametrize("unit", ["words", "characters"])
def test_saving_and_loading_gives_the_same_vocabulary(tmp_path, unit):
    vocabulary = Vocabulary.from_captions(["Un caf\u00e9 \u72d7"], min_count=1, unit=unit)
    path = tmp_path / "vocabulary.json"
    vocabulary.save(path)
    assert Vocabulary.load(path) == vocabulary
    assert Vocabulary.from_json(vocabulary.to_json()) == vocabulary
    assert "\u72d7".encode() in path.read_bytes()
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


GERMAN = [
    "Ein Hund läuft durch den Schnee.",
    "ein hund im Schnee",
    "Der Hund rennt. Schnee fliegt hoch",
    "EIN HUND IM TIEFEN SCHNEE",
    "Läuft ein weißer Hund? Läuft er",
]


def test_words_regain_the_commonest_form_that_they_have_inside_sentences(tmp_path):
    found = Vocabulary.from_captions(GERMAN, min_count=1, language="de", capitals=True)
    assert found.written == {"hund": "Hund", "schnee": "Schnee"}
    ids = found.encode("EIN HUND LÄUFT IM SCHNEE")
    assert found.decode(ids) == "ein Hund läuft im Schnee"
    assert [found.id(word) for word in found.decode(ids).split()] == ids
    plain = Vocabulary.from_captions(GERMAN, min_count=1, language="de")
    assert plain.words == found.words and plain.decode(ids) == "ein hund läuft im schnee"
    assert plain.fingerprint() == found.fingerprint()
    found.save(tmp_path / "vocabulary.json")
    assert Vocabulary.load(tmp_path / "vocabulary.json").decode(ids) == found.decode(ids)


@pytest.mark.parametrize("text", ["{", "[]", '{"words": 3}', json.dumps({"words": ["a"]})])
def test_a_file_that_is_no_vocabulary_is_named(tmp_path, text):
    path = tmp_path / "broken.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="broken.json"):
        Vocabulary.load(path)


def test_further_words_follow_its_own_with_their_forms():
    captions = ["Der Hund und der Hund", "Der Hund"]
    own = Vocabulary.from_captions(captions, min_count=1, language="de", capitals=True)
    more = own.with_more({"<unk>": "<unk>", "hund": "hund", "rad": "Rad", "rot": "rot"})
    assert more.words == (*own.words, "rad", "rot")
    assert more.decode(more.encode("rot hund rad")) == "rot Hund Rad"
    assert own.with_more({}) == own


def test_one_caption_is_no_list_of_captions():
    with pytest.raises(ValueError, match="`captions`: expected a list of captions, not one, got"):
        Vocabulary.from_captions("a man a man", min_count=1)
