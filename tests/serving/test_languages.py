"""Every way of captioning writes a language's text as its run does, without a segmenter."""

import numpy as np
import pytest
import tensorflow as tf

import sat_tf
from sat_tf import load
from sat_tf.inference.graphs import write_graphs
from sat_tf.text.vocabulary import END, Vocabulary
from serving import bulk, export_saved_model
from serving.client import read_caption
from serving.signatures import write_captions
from serving.web.captions import Captioner
from tests.serving.export_fixtures import load_call, write_run

CAPTIONS = {
    "zh": ["一个 男人 骑 自行车", "两只 狗 在 草地 上 跑 3.5 米"],
    "ar": ["كلبٌ أسود يركض على العشب", "رجل يقرأ كتابًا قرب البحر"],
    "de": ["zwei Hunde laufen über eine Wiese", "ein Mann über Wiesen"],
    "pt": ["um cão castanho à beira-mar", "três crianças não estão lá"],
    "hi": ["एक बच्चा सीढ़ियों पर खड़ा है", "दो कुत्ते क्षेत्र में दौड़ते हैं"],
}


def vocabulary_of(language: str, unit: str) -> Vocabulary:
    """A vocabulary of a few words; random weights would write single letters and bytes too."""
    return Vocabulary.from_captions(CAPTIONS[language], 1, unit=unit, language=language)


@pytest.mark.parametrize(
    ("language", "unit"),
    [
        ("de", "words"),
        pytest.param("zh", "characters", marks=pytest.mark.slow),
    ],
)
def test_every_runtime_writes_equal_words(tmp_path, images, language, unit):
    vocabulary = vocabulary_of(language, unit)
    captioner = sat_tf.load(write_run(tmp_path / "run", {"kind": "soft"}, vocabulary=vocabulary))
    export_saved_model.export(captioner, tmp_path / "served")
    write_graphs(tmp_path / "light", captioner)
    served, light = tmp_path / "served" / "1", tmp_path / "light"
    assert load(light).vocabulary == vocabulary
    contents = images.files[:2]
    answer = load_call(served)("serving_default", np.array(contents, object))
    rows = [bulk.to_row(load(light).caption(content), maps=False) for content in contents]
    pages = list(map(Captioner(light), contents))
    for n, (content, row, page) in enumerate(zip(contents, rows, pages, strict=True)):
        expected = captioner.caption(content)
        text, words = expected.text, list(expected.words)
        assert (" " in text) == (language != "zh")
        session, lite = read_caption(answer, n, 1), load(light).caption(content)
        assert (row["caption"], row["words"]) == (text, words)
        best, spoken = page["hypotheses"][0], page["lang"]
        assert spoken == language
        assert (best["text"], [word["text"] for word in best["words"]]) == (text, words)
        others = [page["hypotheses"][1]["text"], row["alternatives"][0]["caption"]]
        assert others == [expected.alternatives[0][0]] * 2
        for found in (session, lite):
            assert (found.text, list(found.words)) == (text, words)
            assert found.alternatives[0][0] == expected.alternatives[0][0]
            np.testing.assert_allclose(found.alpha, expected.alpha, atol=1e-4)
        for log_probs in (session.log_probs, lite.log_probs, row["log_probs"]):
            np.testing.assert_allclose(log_probs, expected.log_probs, atol=1e-4)


@pytest.mark.parametrize(
    ("language", "unit"),
    [
        *(("zh", unit) for unit in ("words", "characters")),
        *((language, "words") for language in ("bo", "ar", "hi", "pt")),
    ],
)
def test_the_graph_joins_tokens_as_the_vocabulary_does(language, unit):
    captions = [
        *(text for texts in CAPTIONS.values() for text in texts),
        "NBA \u732b",
        "\u0f41\u0fb1\u0f72 \u0f53\u0f42",
    ]
    vocabulary = Vocabulary.from_captions(captions, 1, unit=unit, language=language)
    rows = [vocabulary.encode(caption) for caption in [*captions, "\u9c7b \u732b"]]
    rows.append(rows[-1][:3])  # bytes that are no character
    if unit == "characters":
        space, letter = vocabulary.id(" "), rows[0][0]
        rows += [[space, letter, space], [space, space]]
    width = max(map(len, rows))
    ids = tf.constant([[row + [END] * (width - len(row)) for row in rows]])
    texts, _ = write_captions(ids, tf.constant([[*map(len, rows)]]), vocabulary)
    written = [text.decode() for text in texts.numpy()[0]]
    assert written == [vocabulary.decode(row) for row in rows]
