"""The scores as functions: values of pycocoevalcap, signatures, and input that cannot be scored."""

import subprocess
import sys

import numpy as np
import pytest

from sat_tf.scores import bleu, cider, meteor, rouge_l, tokenize

CAPTIONS = ["A dog runs across the grass.", "Two kids play on a beach.", "a bird"]
REFERENCES = [
    ["A dog runs across the green grass .", "The brown dog is running outside ."],
    ["Two children play in the sand .", "Kids build a castle on the beach ."],
    ["A black bird sits on a wire ."],
]


def made_up(longest: int) -> tuple[list[str], list[list[str]]]:
    """Captions of four words at random; their references have up to 14."""
    rng = np.random.default_rng(longest)

    def one(high: int) -> str:
        return " ".join(rng.choice(["a", "dog", "runs", "on"], rng.integers(1, high)))

    return [one(longest) for _ in range(40)], [[one(15) for _ in range(3)] for _ in range(40)]


def pycocoevalcap(name, captions, references):
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.rouge.rouge import Rouge

    found = {i: [text] for i, text in enumerate(tokenize(captions))}
    truth = {i: tokenize(texts) for i, texts in enumerate(references)}
    if name == "bleu":
        score, each = Bleu(4).compute_score(truth, found, verbose=0)
        return score[1], np.array(each[1])
    return {"cider": Cider, "rouge_l": Rouge}[name]().compute_score(truth, found)


@pytest.mark.parametrize("score", [bleu, cider, rouge_l])
@pytest.mark.parametrize("corpus", [(CAPTIONS, REFERENCES), *map(made_up, (8, 15, 25))])
def test_scores_are_those_of_pycocoevalcap(score, corpus):
    found = score(*corpus, **({"n": 2} if score is bleu else {}))
    whole, each = pycocoevalcap(score.__name__, *corpus)
    assert found.score == pytest.approx(100 * whole)
    defined, theirs = ~np.isnan(found.per_image), 100 * np.array(each)
    np.testing.assert_allclose(found.per_image[defined], theirs[defined], atol=1e-5)
    assert (theirs[~defined] < 0.1).all()  # where nothing matches they have a tiny number, we none
    assert found.signature.startswith("lang:en|nrefs:")


def test_another_language_and_tokeniser_are_in_the_signature():
    found = meteor(["Ein Hund läuft"], [["Hunde laufen"]], language="de")
    assert "lang:de" in found.signature and "meteor:1.5-de-exact+stem" in found.signature
    assert 0 < found.score == pytest.approx(found.per_image[0])
    assert "tok:simple" in bleu(CAPTIONS, REFERENCES, tokens="simple", n=1).signature


@pytest.mark.parametrize(
    ("captions", "references", "said"),
    [
        (["a"], [["a"], ["b"]], "the references of 1 captions, got list of 2"),
        ([], [], "the references of at least one captions"),
        (["a"], [[]], "at least one per caption, got none for 1"),
        (["a"], [["..."]], "a reference with a word"),
        (["a"], ["a"], "a list of texts per caption, got str"),
        ("a", [["a"]], "a list of texts, got str"),
        ({"a": "b"}, [["a"]], "a list of texts, got dict"),
        (["a"], [{"a": 1}], "a list of texts per caption, got dict"),
        (["a"], {"a": ["a"]}, "got dict of 1"),
    ],
)
def test_lists_that_cannot_be_scored_are_errors(captions, references, said):
    for score in (bleu, cider, rouge_l):
        with pytest.raises(ValueError, match=said):
            score(captions, references)
    with pytest.raises(ValueError, match=said):
        meteor(captions, references, language="de")
    with pytest.raises(ValueError, match="`n`: expected 1 to 4"):
        bleu(CAPTIONS, REFERENCES, n=5)
    with pytest.raises(ValueError, match="expected one of ptb, .* got pbt"):
        bleu(CAPTIONS, REFERENCES, tokens="pbt")
    with pytest.raises(ValueError, match="tokens that are words"):
        meteor(captions, references, language="zh")


def test_nothing_heavy_is_loaded():
    code = (
        "import sys; from sat_tf.scores import bleu, tokenize; bleu(['a b'], [['a b']], n=1);"
        "sys.exit({'tensorflow', 'keras', 'pycocoevalcap'} & {*sys.modules} != set())"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
