"""Every way of captioning writes a language's text as its run does, without a segmenter."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import sat_tf
from sat_tf.vocabulary import END, Vocabulary
from serving import export as export_module
from serving.client.captions import read_caption
from serving.litert import load
from serving.signatures import write_captions

CHINESE = ["一个 男人 骑 自行车", "两只 狗 在 草地 上 跑 3.5 米"]
GERMAN = ["zwei Hunde laufen über eine Wiese", "ein Mann über Wiesen"]


def vocabulary_of(language: str, unit: str) -> Vocabulary:
    """A vocabulary of a few words; random weights would write single letters and bytes too."""
    captions = {"zh": CHINESE, "de": GERMAN}[language]
    found = Vocabulary.from_captions(captions, 1, unit=unit, language=language)
    words = [w for w in found.words if language == "zh" or len(w) > 2]
    return Vocabulary(tuple(w for w in words if not w.startswith("<0x")), unit, language)


@pytest.mark.parametrize(
    ("language", "unit"),
    [
        ("de", "subwords"),
        pytest.param("zh", "subwords", marks=pytest.mark.slow),
        pytest.param("zh", "words", marks=pytest.mark.slow),
        pytest.param("zh", "characters", marks=pytest.mark.slow),
    ],
)
def test_run_session_and_litert_write_equal_words(
    tmp_path, make_run, make_request, ask, images, language, unit
):
    vocabulary = vocabulary_of(language, unit)
    run = make_run(tmp_path / "run", {"kind": "soft"}, vocabulary=vocabulary)
    captioner = sat_tf.load(run)
    export_module.export(captioner, tmp_path / "served")
    export_module.export(captioner, tmp_path / "light", None, "litert", "float32")
    light = load(tmp_path / "light" / "1")
    assert light.vocabulary == vocabulary
    files = images.files[:2]
    call = make_request("serving_default", files)
    answer = ask({"it": (tmp_path / "served" / "1", {"call": call})})["it"]["calls"]["call"]
    for row, content in enumerate(files):
        expected = captioner.caption(content)
        assert (" " in expected.text) == (language == "de")
        session = read_caption(as_arrays(answer), row, 1)
        for found in (session, light.caption(content)):
            assert (found.text, found.words) == (expected.text, expected.words)
            assert found.alternatives[0][0] == expected.alternatives[0][0]
            np.testing.assert_allclose(found.alpha, expected.alpha, atol=1e-4)
            np.testing.assert_allclose(found.log_probs, expected.log_probs, atol=1e-4)


@pytest.mark.parametrize("unit", ["words", "characters", "subwords"])
def test_the_graph_joins_tokens_as_the_vocabulary_does(unit):
    captions = [*CHINESE, *GERMAN, "NBA \u732b"]
    vocabulary = Vocabulary.from_captions(captions, 1, unit=unit, language="zh")
    rows = [vocabulary.encode(caption) for caption in [*captions, "\u9c7b \u732b"]]
    rows.append(rows[-1][:3])  # bytes that are no character
    width = max(map(len, rows))
    ids = tf.constant([[row + [END] * (width - len(row)) for row in rows]])
    texts, _ = write_captions(ids, tf.constant([[*map(len, rows)]]), vocabulary)
    written = [text.decode() for text in texts.numpy()[0]]
    assert written == [vocabulary.decode(row) for row in rows]


def as_arrays(answer: dict) -> dict[str, np.ndarray]:
    """Outputs as the client reads them: texts are bytes."""
    arrays = {name: np.asarray(value) for name, value in answer.items()}
    return {n: np.char.encode(a, "utf-8") if a.dtype.kind == "U" else a for n, a in arrays.items()}
