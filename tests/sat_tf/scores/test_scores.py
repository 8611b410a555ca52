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


def pycocoevalcap(name):
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.rouge.rouge import Rouge

    found = {i: [text] for i, text in enumerate(tokenize(CAPTIONS))}
    truth = {i: tokenize(texts) for i, texts in enumerate(REFERENCES)}
    if name == "bleu":
        score, each = Bleu(4).compute_score(truth, found, verbose=0)
        return score[1], np.array(each[1])
    return {"cider": Cider, "rouge_l": Rouge}[name]().compute_score(truth, found)


@pytest.mark.parametrize("score", [bleu, cider, rouge_l])
def test_scores_are_those_of_pycocoevalcap(score):
    found = score(CAPTIONS, REFERENCES, **({"n": 2} if score is bleu else {}))
    whole, each = pycocoevalcap(score.__name__)
    assert found.score == pytest.approx(100 * whole)
    # Where nothing matches they have a tiny number, we none.
    np.testing.assert_allclose(np.nan_to_num(found.per_image), 100 * np.array(each), atol=1e-5)
    assert found.signature.startswith("lang:en|nrefs:1-2|tok:ptb-")


def test_another_language_and_tokeniser_are_in_the_signature():
    found = meteor(["Ein Hund läuft"], [["Hunde laufen"]], language="de")
    assert "lang:de" in found.signature and "meteor:1.5-de-exact+stem" in found.signature
    assert 0 < found.score == pytest.approx(found.per_image[0])
    assert "tok:simple" in bleu(CAPTIONS, REFERENCES, tokens="simple", n=1).signature


@pytest.mark.parametrize(
    ("captions", "references", "said"),
    [
        (["a"], [["a"], ["b"]], "the references of 1 captions, got those of 2"),
        ([], [], "the references of at least one captions"),
        (["a"], [[]], "at least one per caption, got none for 1"),
        (["a"], [["..."]], "a reference with a word"),
        (["a"], ["a"], "a list of references per caption"),
        ("a", [["a"]], "a list of captions"),
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
    with pytest.raises(ValueError, match="tokens that are words"):
        meteor(captions, references, language="zh")


def test_nothing_heavy_is_loaded():
    code = (
        "import sys; from sat_tf.scores import bleu, tokenize; bleu(['a b'], [['a b']], n=1);"
        "sys.exit({'tensorflow', 'keras', 'pycocoevalcap'} & {*sys.modules} != set())"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
