"""The rules that split captions, in the scripts and spellings that they are for."""

import json
from collections import Counter

import numpy as np
import pytest

from sat_tf import tokens
from sat_tf.joining import join, joining, whole_words
from sat_tf.spellings import both_spellings
from sat_tf.subwords import learn_subwords
from sat_tf.tokens import comparable, default_segmenter, default_unit, tokenize
from sat_tf.vocabulary import UNK, Vocabulary

WORDS = [
    ("en", "3.5 cm, 1,000 at 10:30. 1/2 of 50% .5", "3.5 cm 1,000 at 10:30 1/2 of 50% .5"),
    ("en", "5 % of 3.", "5 % of 3"),
    ("en", "Rock &amp; roll &lt;3&#39;s", "rock roll 3's"),
    ("tr", "\u0130ki \u00e7ocuk I\u015eIKLI %50", "iki \u00e7ocuk \u0131\u015f\u0131kl\u0131 %50"),
    ("az", "I\u0307nci QIZ", "inci q\u0131z"),
    ("en", "\u0130stanbul", "istanbul"),
    ("he", 'צה"ל ג\u05f3יפ', "צה\u05f4ל ג'יפ"),
    ("he", "\u05d1\u05d9\u05ea\u05be\u05e9\u05c1\u05dc", "\u05d1\u05d9\u05ea-\u05e9\u05dc"),
    ("ca", "col\u00b7legi co\u0140legi \u00b7 a", "col\u00b7legi col\u00b7legi a"),
    ("bo", "བཀྲ\u0f0bཤིས\u0f0d", "བཀྲ\u0f0bཤིས"),
    ("ar", "كـلب أسودٌ", "كلب أسود"),
    ("ar", "\ufedb\ufee0\ufe90 \u0663\u066b\u0665", "\u0643\u0644\u0628 \u0663\u066b\u0665"),
    ("ja", "\uff36\uff35\u3000\uff76\uff9e\uff97\uff7d", "vu \u30ac\u30e9\u30b9"),
    ("th", "\u0e19\u0e49\u0e33", "\u0e19\u0e49\u0e33"),  # sara am is one letter still
    ("hy", "\u056b\u0576\u0579\u057a\u0565\u055e\u057d", "\u056b\u0576\u0579\u057a\u0565\u057d"),
    ("uz", "o\u2018zbek", "o'zbek"),
    ("ar", "NBA \u200fكلب\u200e 23", "nba كلب 23"),  # mixed directions
    ("en", "\u0301\u0302 \u0301", ""),  # marks alone
    (
        "en",
        "-5 \u00b0C, \u2212.5 to 2\u20133, 2\u00d74, 1\u20442, 5\u2030",
        "-5 c -.5 to 2-3 2x4 1/2 5\u2030",
    ),
    ("ja", "5\u339e 30\u2103 \u2116 5", "5km 30 c no 5"),
    ("ja", "\u304b\u309b\u3059", "\u304c\u3059"),
    ("zh", "\u2f08\u2f1d", "\u4eba\u53e3"),  # radicals for letters
    ("uk", "\u0437\u2032\u0457\u0437\u0434", "\u0437'\u0457\u0437\u0434"),
    ("ca", "col\u2022lega l\u2219l", "col\u00b7lega l\u00b7l"),
    ("el", "πάει\u00b7όχι", "πάει όχι"),
    ("uz", "o\u02bbzbek", "o'zbek"),
    (
        "fa",
        "\u0643\u062a\u0627\u0628\u200c\u200c\u0647\u0627\u064a",
        "\u06a9\u062a\u0627\u0628\u200c\u0647\u0627\u06cc",
    ),
    (
        "th",
        "\u0e19\u0e49\u0e4d\u0e32 \u0e40\u0e40\u0e21\u0e27",
        "\u0e19\u0e49\u0e33 \u0e41\u0e21\u0e27",
    ),
    ("ml", "\u0d05\u0d35\u0d28\u0d4d\u200d", "\u0d05\u0d35\u0d7b"),
    ("lt", "J\u0307is", "jis"),
    ("vi", "ho\u00e0 qu\u00fd tho\u1ea1i u\u1ef7", "h\u00f2a qu\u00fd tho\u1ea1i \u1ee7y"),
    ("tt-Latn", "I\u015eIQ \u0130t", "\u0131\u015f\u0131q it"),
    ("iw", "\u05e9\u05c1\u05dc", "\u05e9\u05dc"),
    ("fi", "EU:n 10:30", "eu:n 10:30"),
    ("de", "Radfahrer*innen, Hund: Katze", "radfahrer*innen hund katze"),
    ("it", "un po\u2019 di 'sole'", "un po' di sole"),
    ("es", "3.\u00ba 1\u01c6", "3\u00ba 1d\u017e"),
    ("sd", "\u06fd \u06fe", "\u06fd \u06fe"),
    ("my", "\u104e\u1004\u103a\u1038", "\u104e\u1004\u103a\u1038"),
    ("haw", "'aloha' 'oe", "aloha 'oe"),
    ("eu", "% 50", "% 50"),
    ("hu", "50%-os, 20 %.", "50%-os 20 %"),
    ("my", "\u1041\u1040 \u1041.\u1040", "\u1041\u1040 \u1041.\u1040"),
    ("ru", "\u0434\u043e\u043c \u2116 5", "\u0434\u043e\u043c \u2116 5"),
]

sentencepiece = pytest.importorskip("sentencepiece")


@pytest.mark.parametrize(("language", "caption", "words"), WORDS)
def test_words_keep_the_signs_that_belong_to_them(language, caption, words):
    assert tokenize(caption, "words", language) == words.split()


@pytest.mark.parametrize(
    ("language", "caption", "other"),
    [
        (
            "mr",
            "\u092a\u093e\u0930\u094d\u200d\u092f\u093e",
            "\u092a\u093e\u0931\u094d\u092f\u093e",
        ),
        (
            "hi",
            "\u0915\u094d\u200d\u092f\u093e \u0926\u0941\u0903\u0916",
            "\u0915\u094d\u092f\u093e \u0926\u0941:\u0916",
        ),
        ("bn", "\u09b0\u200c\u09cd\u09af\u09be\u09ac", "\u09b0\u200d\u09cd\u09af\u09be\u09ac"),
        (
            "ml",
            "\u0d0e\u0d28\u0d4d\u0d31\u0d46 \u0d2a\u0d57\u0d30\u0d7b",
            "\u0d0e\u0d7b\u0d4d\u0d31\u0d46 \u0d2a\u0d4c\u0d30\u0d7b",
        ),
        ("ml", "\u0d0e\u0d28\u0d4d\u0d31\u0d46", "\u0d0e\u0d7b\u0d31\u0d46"),
        ("ta", "\u0bb8\u0bcd\u0bb0\u0bc0", "\u0bb6\u0bcd\u0bb0\u0bc0"),
        ("lo", "\u0edd\u0eb2\u0edc\u0ec9\u0eb2", "\u0eab\u0ea1\u0eb2\u0eab\u0e99\u0ec9\u0eb2"),
        ("ro", "\u0219i \u021aar\u0103", "\u015fi \u0162ar\u0103"),
        (
            "ckb",
            "\u0633\u06d5\u06af \u06a9\u0648\u0631\u062f\u06cc",
            "\u0633\u0647\u200c\u06af \u0643\u0648\u0631\u062f\u064a",
        ),
        ("fa", "\u062e\u0627\u0646\u0647\u0654", "\u062e\u0627\u0646\u06c0"),
        ("ur", "\u06a9\u062a\u0627 \u06c1\u06d2", "\u0643\u062a\u0627 \u0647\u06d2"),
        (
            "yi",
            "\u05f0\u05d0\u05b7\u05e1\u05e2\u05e8 \u05f2\u05b7\u05d6",
            "\u05d5\u05d5\u05d0\u05b7\u05e1\u05e2\u05e8 \u05d9\u05d9\u05b7\u05d6",
        ),
        ("ca", "col\u00b7legi", "col.legi"),
        ("haw", "\u02bb\u012blio Hawai\u02bbi", "'\u012blio Hawai\u2018i"),
        ("yo", "\u1eb9gb\u1eb9\u0301", "e\u0329gb\u00e9\u0329"),
        ("zh", "约翰\u00b7史密斯 10:30", "约翰\u2022史密斯 10\u223630"),
        ("ja", "ジョン\u30fbスミス 第III章", "ジョン\u00b7スミス 第Ⅲ章"),
        ("ko", "\ube68\uac15\u00b7\ud30c\ub791", "\ube68\uac15\u318d\ud30c\ub791"),
        ("es", "20 \u00b0C n\u00ba 5", "20\u00baC n.\u00b0 5"),
        ("it", "1\u00ba piano", "1\u00b0 piano"),
        ("en", "5 m\u00b2", "5 \u33a1"),
        ("en", "H\u2082O", "h2o"),
        ("en", "5\u03bcm l'", "5\u00b5m l\u201b"),
        ("am", "3:30", "3\u136130"),
        ("ar", "\u0663,\u0665", "\u0663\u060c\u0665"),
        ("ur", "\u06f3.\u06f5", "\u06f3\u06d4\u06f5"),
        ("de", "-5", "\u20135"),
        (
            "ce",
            "\u0433\u04c0\u0430\u043b\u0430 \u04c0\u0430\u0436",
            "\u04331\u0430\u043b\u0430 I\u0430\u0436",
        ),
        ("cv", "\u0439\u044b\u0442\u04d1", "\u0439\u044b\u0442\u0103"),
        ("ak", "\u025b", "\u03b5"),
        ("az", "\u0259", "\u01dd"),
        ("chr", "\u13a9\u13df", "\uab79\uabaf"),
        ("ga", "n-athair", "nAthair"),
        ("quc", "tz'i'", "tz\ua78ci\ua78c"),
        ("th", "\u0e40\u0e14\u0e47\u0e01\u0e46", "\u0e40\u0e14\u0e47\u0e01 \u0e46"),
        (
            "hi",
            "\u092c\u0949\u0932 \u0911\u092b\u093f\u0938",
            "\u092c\u093e\u0945\u0932 \u0906\u0945\u092b\u093f\u0938",
        ),
        ("mr", "\u0972\u092a", "\u0905\u0945\u092a"),
        ("pa", "\u0a06\u0a26\u0a2e\u0a40", "\u0a05\u0a3e\u0a26\u0a2e\u0a40"),
        ("bn", "\u0986\u099b\u09c7", "\u0986\u099b\u09c7\u09f7"),
        (
            "km",
            "\u1794\u17d2\u178f\u17b8 \u1780\u178e\u17d2\u178a\u17b6\u179b \u179b\u17be",
            "\u1794\u17d2\u178a\u17b8 \u1780\u178e\u17d2\u178f\u17b6\u179b \u179b\u17c1\u17b8",
        ),
        (
            "my",
            "\u101d\u1010\u103a \u104e\u1004\u103a\u1038 \u1009\u103a",
            "\u1040\u1010\u103a \u1044\u1004\u103a\u1038 \u1025\u103a",
        ),
        ("vi", "\u0111i", "\u00f0i"),
        ("ko", "\uac1c\uac00", "\uac1c\u3164\uac00"),
        ("tr", "%50", "\uff0550"),
    ],
)
def test_forms_that_people_write_for_the_same_text_have_the_same_words(language, caption, other):
    assert tokenize(caption, language=language) == tokenize(other, language=language)


@pytest.mark.parametrize(
    ("language", "caption", "other"),
    [
        ("el", "\u03cc\u03c4\u03b9", "\u03cc,\u03c4\u03b9"),
        ("mt", "ta", "ta'"),
        ("haw", "ala", "'ala"),
        ("ha", "ya", "'ya"),
        ("ga", "nathair", "n-athair"),
        ("eu", "% 50", "50"),
        ("it", "1 piano", "1\u00b0 piano"),
        ("ro", "sa", "\u0219a"),
        ("bn", "\u09b0\u09cd\u09af\u09be\u09ac", "\u09b0\u200d\u09cd\u09af\u09be\u09ac"),
    ],
)
def test_forms_of_different_meaning_have_different_words(language, caption, other):
    assert tokenize(caption, language=language) != tokenize(other, language=language)


@pytest.mark.parametrize(
    ("caption", "text"),
    [
        ("\u9ad83.5\u7c73\u7684\u5854\u3002", "\u9ad83.5\u7c73\u7684\u5854"),
        ("\u670912\uff1a30", "\u670912:30"),
        ("\u67093\u30015\u53ea", "\u67093 5\u53ea"),
        ("\u4e00 \u53ea \u72d7", "\u4e00\u53ea\u72d7"),  # segmented by its owner
        ("\u0915\u094d\u0937\u093f A", "\u0915\u094d\u0937\u093f a"),
    ],
)
def test_characters_are_clusters_that_keep_numbers(caption, text):
    found = tokenize(caption, "characters", "zh")
    assert join(found, *joining("characters")) == text
    assert tokenize(text, "characters", "zh") == found


def test_words_that_are_spelt_in_two_ways_are_found():
    words = dict.fromkeys(
        ["colours", "colors", "four", "for", "there", "centre", "center", "travelled", "traveled"],
        2,
    )
    words |= {"grey": 9, "gray": 5, "realise": 1, "moustache": 1, "mustache": 1, "honour": 1}
    expected = [("colours", "colors"), ("centre", "center"), ("travelled", "traveled")]
    assert both_spellings(words) == [("grey", "gray"), *expected, ("moustache", "mustache")]


def test_a_conjunct_and_a_family_are_one_character():
    assert tokenize("\u0915\u094d\u0937\u093f", "characters") == ["\u0915\u094d\u0937\u093f"]


def test_written_forms_are_of_words_as_the_rules_split_them():
    captions = ["Ein Auto*Innen Bild"] * 2
    vocabulary = Vocabulary.from_captions(captions, 1, language="de", capitals=True)
    assert vocabulary.written["auto*innen"] == "Auto*Innen"


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("de", "Die Stra\u00dfe ist gro\u00df"),
        ("el", "\u039f \u03c3\u03ba\u03cd\u03bb\u03bf\u03c2 \u03c4\u03c1\u03ad\u03c7\u03b5\u03b9"),
        ("tr", "\u0131\u015f\u0131kl\u0131 iki k\u00f6pek"),
        ("az", "q\u0131z it il\u0259"),
        ("nl", "\u0133s"),
        ("el", "\u03b3\u03ac\u03b9\u03b4\u03b1\u03c1\u03bf\u03c2"),
        ("hy", "\u0577\u0578\u0582\u0576\u0568 \u0587"),
    ],
)
def test_captions_in_capitals_compare_as_equal(language, text):
    upper = text.replace("i", "\u0130") if language in ("tr", "az") else text
    capitals = upper.upper()
    if language == "el":
        for capital, bare in ("\u038e\u03a5", "\u0388\u0395", "\u0386\u0391", "\u0399\u03aa"):
            capitals = capitals.replace(capital, bare)
    capitals = capitals.replace("\u0535\u0552", "\u0535\u054e")
    one, other = (
        [comparable(token, language) for token in tokenize(spelled, "words", language)]
        for spelled in (text, capitals)
    )
    assert one == other


def test_digits_of_all_scripts_compare_as_equal():
    for token in ("\u0663\u066b\u0665\u066a", "\u096b".join(["3.", "%"]), "\uff13.\u0e55%"):
        (found,) = tokenize(token, language="ar")
        assert comparable(found) == "3.5%"


def test_languages_without_spaces_have_tokens_of_their_own():
    units = {code: default_unit(code) for code in ("zh-Hans", "ja", "th", "de", "ko", "bo")}
    expected = ["characters", "characters", "words", "words", "words", "characters"]
    assert [default_unit(code) for code in ("jv-Java", "zh-Latn-pinyin")] == ["characters", "words"]
    assert default_segmenter("th-Latn") == "spaces"
    assert list(units.values()) == expected
    assert [default_segmenter(code) for code in ("km", "my-MM", "en")] == ["icu", "icu", "spaces"]


@pytest.mark.parametrize(
    ("language", "segmenter", "text", "words"),
    [
        ("th", "icu", "\u0e0a\u0e32\u0e22\u0e02\u0e35\u0e48\u0e21\u0e49\u0e32", 3),
        ("th", "icu", "\u0e40\u0e21\u0e15\u0e23nba-all", 2),  # ICU takes them for one word
        ("zh", "icu", "\u4e24\u53ea\u72d73.5\u7c73", 5),
        ("zh", "jieba", "\u4e24\u53ea\u72d73.5\u7c73", 4),
        ("zh", "jieba", "\u7a7ft\u6064\u7684a4\u7eb83-5\u5f20", 7),  # T-shirt is a word
        ("ja", "icu", "\u7537\u6027\u304c\u4e57\u308b", 3),
        ("ja", "mecab", "\u7537\u6027\u304c\u4e57\u308b", 3),
    ],
)
def test_segmented_words_are_joined_without_spaces(language, segmenter, text, words):
    found = tokenize(text, "words", language, segmenter=segmenter)
    assert len(found) == words
    assert "3.5" in found or "3.5" not in text
    assert join(found, *joining("words", language)) == text


def test_a_missing_segmenter_is_named_with_its_extra(monkeypatch):
    monkeypatch.setattr(tokens, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"`segmenter`: expected fugashi to be .*\[mecab\]"):
        tokenize("\u7537\u6027", "words", "yue", segmenter="mecab")  # not loaded by another test
    with pytest.raises(ValueError, match=r"`unit`: expected sentencepiece to be installed"):
        Vocabulary.from_captions(["a"], unit="subwords")


def test_numbers_beside_one_another_stay_two():
    text = "\u0e27\u0e34\u0e48\u0e07 \u0e51\u0e50 \u0e52\u0e50 30"
    found = join(tokenize(text, "words", "th"), *joining("words", "th"))
    assert found == "\u0e27\u0e34\u0e48\u0e07\u0e51\u0e50 \u0e52\u0e50 30"


def test_owners_spaces_go_but_not_those_of_latin_words_or_of_korean():
    rule = joining("words", "zh")
    assert (
        join(["\u7a7f", "nba", "all", "star", "\u7403\u8863"], *rule)
        == "\u7a7fnba all star\u7403\u8863"
    )
    assert join(["\u7f8e", "\ub300"], *joining("words", "ko")) == "\u7f8e \ub300"
    assert (
        join(["\u0f41\u0fb1\u0f72", "\u0f53\u0f42"], *joining("words", "bo"))
        == "\u0f41\u0fb1\u0f72\u0f0b\u0f53\u0f42"
    )


def test_subwords_are_pieces_of_whole_characters_and_nothing_is_unknown():
    captions = ["\u0915\u094d\u0937\u093f dogs", "dog", "dogs run"] * 3 + ["\u4e2d"]
    vocabulary = Vocabulary.from_captions(captions, 3, unit="subwords")
    assert Vocabulary.from_json(vocabulary.to_json()) == vocabulary
    for caption in (
        "dogs run",
        "\u4e2d\u6587\u0915\u094d\u0937\u093f \u0915\u093f",
        "zebra's 3.5",
    ):
        ids = vocabulary.encode(caption)
        assert UNK not in ids
        assert vocabulary.decode(ids) == caption
    pieces = vocabulary.tokenize("\u0915\u094d\u0937\u093f")
    assert not any(piece in "\u0915\u094d\u0937" for piece in pieces)
    with pytest.raises(ValueError, match="`--data.vocabulary_size`: expected at least"):
        Vocabulary.from_captions(captions, 3, 5, unit="subwords")


@pytest.mark.parametrize(("times", "most"), [(1, 1000), (400, 2000), (4000, 4000)])
def test_more_captions_have_more_subwords(monkeypatch, times, most):
    asked = []
    train = sentencepiece.SentencePieceTrainer.train

    def note(**options):
        asked.append(options["vocab_size"] - 1)
        train(**options)

    monkeypatch.setattr(sentencepiece.SentencePieceTrainer, "train", note)
    learn_subwords(Counter({f"word{n}": times for n in range(250)}), 1)
    assert asked == [most]


def test_captions_without_a_word_have_no_subwords():
    assert len(Vocabulary.from_captions(["\u0301", "?"], 1, unit="subwords")) == 4


def test_subwords_are_of_words_as_they_are_written():
    captions = ["Ein Hund und ein Hund.", "Der Hund."] * 3
    vocabulary = Vocabulary.from_captions(
        captions, 1, unit="subwords", language="de", capitals=True
    )
    assert vocabulary.decode(vocabulary.encode("EIN HUND")) == "ein Hund"
    assert vocabulary.places("ein hund") == [("ein", 0, 0), ("hund", 1, 1)]


def test_a_word_has_the_mean_of_its_subwords_maps_and_all_of_their_log_probability():
    pieces = ["\u2581dog", "s", "\u2581", "\u72d7", "\u8dd1"]
    alpha, ones = np.arange(5.0).reshape(5, 1, 1), -np.ones(5)
    found = whole_words(pieces, alpha=alpha, log_probs=ones, beta=None)
    assert found["words"] == ("dogs", "\u72d7", "\u8dd1")
    assert found["alpha"].ravel().tolist() == [0.5, 2.5, 4.0]
    assert found["log_probs"].tolist() == [-2.0, -2.0, -1.0] and found["beta"] is None
    assert whole_words(["dog"], alpha=alpha[:1])["alpha"] is not None
    syllables = whole_words(["\u2581\u0f41\u0fb1\u0f72\u0f0b", "\u0f53", "\u0f42"])["words"]
    assert syllables == ("\u0f41\u0fb1\u0f72\u0f0b", "\u0f53\u0f42")


@pytest.mark.parametrize("unit", ["words", "characters", "subwords"])
def test_words_of_boxes_have_spans_among_any_tokens(unit):
    caption = "\u4e24\u53ea \u72d7 NBA 3.5"
    vocabulary = Vocabulary.from_captions([caption], 1, unit=unit, language="zh")
    found = vocabulary.tokenize(caption)
    assert vocabulary.base_words(caption) == ["\u4e24", "\u53ea", "\u72d7", "nba", "3.5"]
    for word, first, last in vocabulary.places(caption):
        assert word in vocabulary.join(found[first : last + 1])


def test_a_vocabulary_of_other_rules_is_refused():
    vocabulary = Vocabulary.from_captions(["a dog"], 1, language="de")
    assert Vocabulary.from_json(vocabulary.to_json()) == vocabulary
    value = json.loads(vocabulary.to_json())
    for rules in ({"rules": 2}, {}):
        text = json.dumps({k: v for k, v in value.items() if k != "rules"} | rules)
        with pytest.raises(ValueError, match="split by other rules .* train and export .* again"):
            Vocabulary.from_json(text)
