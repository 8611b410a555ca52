"""The score of captions after an epoch, and alarms about attention that has collapsed."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from sat_tf.config import SearchConfig
from sat_tf.fields import from_dict
from sat_tf.models.captioner import Captioner, configs
from training.config import DataConfig, FitConfig
from training.data.examples import Example, Split
from training.evaluate.reading import Reading
from training.metrics.captions import caption_frequencies, quick_cider
from training.validation import (
    CONSTANT_VARIATION,
    UNIFORM_ENTROPY,
    AttentionCollapseWarning,
    Validation,
)


def test_cider_after_an_epoch_is_that_of_each_image_by_the_training_captions(monkeypatch):
    def split(**captions: str) -> Split:
        examples = (Example(name, b"", (text,)) for name, text in captions.items())
        return Split("dev", tuple(examples))

    train = split(a="a dog runs", b="a cat sleeps", c="a dog and a cat", d="two red cars")
    dev = split(x="a dog runs fast", y="two red cars on a road", z="a cat")
    texts = {"x": "a dog runs", "y": "two red cars", "z": "a dog"}

    def captions(*_, count):
        found = [*texts.items()][:count]
        return {name: SimpleNamespace(text=text) for name, text in found}

    monkeypatch.setattr(Reading, "captions", captions)

    def scored(count: int) -> float:
        config = SimpleNamespace(
            fit=FitConfig(validation_images=count), search=SearchConfig(), data=DataConfig()
        )
        captioner = SimpleNamespace(vocabulary=SimpleNamespace(unit="words"))
        data = SimpleNamespace(train=train, dev=dev, dev_table=None)
        inputs = SimpleNamespace(dev=None)
        return Validation(captioner, config, data, inputs).caption_scores()["cider"]

    frequencies = caption_frequencies([example.captions for example in train.examples])
    alone = [
        quick_cider({name: text}, {name: dev.references()[name]}, frequencies=frequencies)
        for name, text in texts.items()
    ]
    assert [scored(count) for count in (1, 2, 3)] == pytest.approx(
        [np.mean(alone[:count]) for count in (1, 2, 3)]
    )


def make_model(kind: str = "soft") -> Captioner:
    values = {
        "encoder": {"name": "scenes_cnn", "image_size": 32},
        "decoder": {"embedding_dim": 8, "attention_dim": 16, "hidden_dim": 16},
        "attention": {"kind": kind},
    }
    model = Captioner(from_dict(configs.CaptionerConfig, values), 9)
    model.compile(optimizer=keras.optimizers.SGD(0.0), run_eagerly=True)
    return model


def spread(variable, scale: float) -> None:
    """Weights so large that the attention they give is peaked."""
    rng = np.random.default_rng(1)
    variable.assign(scale * rng.standard_normal(variable.shape).astype(np.float32))


def healthy(model: Captioner) -> None:
    spread(model.decoder.attention.score_vector, 4.0)
    spread(model.decoder.attention.query_projection.kernel, 8.0)


def uniform(model: Captioner) -> None:
    healthy(model)
    vector = model.decoder.attention.score_vector
    vector.assign(np.zeros(vector.shape))


def constant(model: Captioner) -> None:
    healthy(model)
    kernel = model.decoder.attention.query_projection.kernel
    kernel.assign(np.zeros(kernel.shape))


def alarms(model: Captioner) -> list[str]:
    """Returns the alarm's messages of an epoch at learning rate 0."""
    rng = np.random.default_rng(0)
    annotations = rng.standard_normal([4, 16, 32]).astype(np.float32)
    tokens = np.array([[1, *rng.integers(4, 9, 8), 2] for _ in range(4)], np.int32)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(
            {"annotations": annotations, "tokens": tokens},
            callbacks=[AttentionCollapseWarning()],
            verbose=0,
        )
    return [str(w.message) for w in caught if "collapsed" in str(w.message)]


@pytest.mark.parametrize("kind", ["soft", "hard"])
def test_the_alarm_is_silent_while_attention_is_peaked_and_moves(kind):
    model = make_model(kind)
    healthy(model)
    assert alarms(model) == []


@pytest.mark.parametrize("kind", ["soft", "hard"])
@pytest.mark.parametrize(
    ("attend", "said"), [(uniform, ("uniform", "1.000")), (constant, ("constant over time",))]
)
def test_the_alarm_fires_on_attention_that_is_uniform_or_never_moves(kind, attend, said):
    model = make_model(kind)
    attend(model)
    (message,) = alarms(model)
    assert all(part in message for part in ("Epoch 1", *said))


@pytest.mark.parametrize(
    ("entropy", "variation", "word"),
    [
        (UNIFORM_ENTROPY + 1e-3, 0.5, "uniform"),
        (UNIFORM_ENTROPY - 1e-3, 0.5, None),
        (0.5, CONSTANT_VARIATION - 1e-4, "constant"),
        (0.5, CONSTANT_VARIATION + 1e-4, None),
    ],
)
def test_the_alarm_goes_by_its_thresholds(entropy, variation, word):
    logs = {"alpha_entropy": entropy, "alpha_variation": variation}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        AttentionCollapseWarning().on_epoch_end(0, logs)
    assert [word in str(w.message) for w in caught] == ([True] if word else [])
