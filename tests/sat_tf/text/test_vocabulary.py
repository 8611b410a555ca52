import json

import pytest

from sat_tf.text.vocabulary import END, PAD, SPECIAL_TOKENS, START, UNK, Vocabulary

CAPTIONS = ["A dog runs .", "A dog sits .", "A cat sits ."]


def vocabulary_of(*words: str, unit="words", **rest) -> Vocabulary:
    return Vocabulary(SPECIAL_TOKENS + words, unit, **rest)


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


@pytest.mark.parametrize("text", ["{", "[]", '{"words": 3}', json.dumps({"words": ["a"]})])
def test_a_file_that_is_no_vocabulary_is_named(tmp_path, text):
    path = tmp_path / "broken.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="broken.json"):
        Vocabulary.load(path)


def test_further_words_follow_its_own():
    own = Vocabulary.from_captions(CAPTIONS, min_count=1)
    more = own.with_more(["<unk>", "dog", "red", "bike", "red"])
    assert more.words == (*own.words, "red", "bike")
    assert own.with_more([]) == own


def test_a_vocabulary_of_other_rules_is_refused_unless_its_english_words_are_the_same():
    value = json.loads(Vocabulary.from_captions(["a dog"], 1, language="en").to_json())
    old = value | {"rules": 3, "segmenter": "spaces"}
    assert Vocabulary.from_json(json.dumps(old)).words[4:] == ("a", "dog")
    for other in (
        old | {"language": "de"},
        old | {"unit": "characters"},
        old | {"written": {"dog": "Dog"}},
        value | {"rules": 2},
    ):
        with pytest.raises(ValueError, match="split by other rules .* train and export .* again"):
            Vocabulary.from_json(json.dumps(other))


def test_one_caption_is_no_list_of_captions():
    with pytest.raises(ValueError, match="`captions`: expected a list of captions, not one, got"):
        Vocabulary.from_captions("a man a man", min_count=1)
