"""The score of captions after an epoch, and alarms about attention that has collapsed."""

import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from sat_tf.config import SearchConfig
from training.data.config import DataConfig
from training.data.examples import Example, Split
from training.evaluation.reading import Captioning
from training.evaluation.validation import Validation, caption_frequencies, quick_scores
from training.run.config import FitConfig
from training.run.logs import CONSTANT_VARIATION, UNIFORM_ENTROPY, AttentionCollapseWarning


def test_cider_after_an_epoch_is_that_of_each_image_by_the_training_captions(monkeypatch):
    def split(**captions: str) -> Split:
        examples = (Example(name, Path(name), (text,)) for name, text in captions.items())
        return Split("dev", tuple(examples))

    train = split(a="a dog runs", b="a cat sleeps", c="a dog and a cat", d="two red cars")
    dev = split(x="a dog runs fast", y="two red cars on a road", z="a cat")
    texts = {"x": "a dog runs", "y": "two red cars", "z": "a dog"}

    def captions(*_, count):
        found = [*texts.items()][:count]
        return {name: SimpleNamespace(text=text) for name, text in found}

    monkeypatch.setattr(Captioning, "captions", captions)

    def scored(count: int) -> float:
        captioner = SimpleNamespace(config=SimpleNamespace(search=SearchConfig()))
        data = SimpleNamespace(config=DataConfig(), train=train, dev=dev, dev_table=None)
        fit = FitConfig(validation_images=count)
        return Validation(captioner, data, None, fit).caption_scores()["cider"]

    frequencies = caption_frequencies([example.captions for example in train.examples])
    alone = [
        quick_scores({name: text}, {name: dev.references()[name]}, frequencies)["cider"]
        for name, text in texts.items()
    ]
    assert [scored(count) for count in (1, 2, 3)] == pytest.approx(
        [np.mean(alone[:count]) for count in (1, 2, 3)]
    )


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
