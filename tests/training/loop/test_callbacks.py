"""The end of an epoch: scalars and figures in TensorBoard, warnings, early stopping."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import keras
import numpy as np
import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer
from tensorboard.util import tensor_util

from sat_tf.fields import from_dict
from sat_tf.models.captioner import Captioner, configs
from sat_tf.objectives.logs import ROLLOUT_LOGS
from training.config import FitConfig
from training.loop.callbacks import CheckpointAndStop
from training.run_state.checkpoints import Progress
from training.run_state.preemption import Interrupts
from training.tasks.captioning.validation import (
    CONSTANT_VARIATION,
    UNIFORM_ENTROPY,
    AttentionCollapseWarning,
)

EVERY_RUN = {
    "train": ("loss", "nll", "learning_rate", "beta", "gradient_norm"),
    "validation": ("bleu_4", "cider", "nll", "distinct"),
}
ATTENTION = ("alpha_entropy", "alpha_variation", "penalty")
HARD = ("baseline", "reward", *ROLLOUT_LOGS)
BOUNDS = ("elbo", "importance_weighted_bound_5", "nwgm_gap", "forward_gap")


def opened(run: Path) -> EventMultiplexer:
    """The run as TensorBoard reads it."""
    return EventMultiplexer().AddRunsFromDirectory(str(run / "logs")).Reload()


def scalars(events: EventMultiplexer, part: str, name: str) -> dict[int, float]:
    found = events.Tensors(part, f"epoch_{name}")
    return {event.step: float(tensor_util.make_ndarray(event.tensor_proto)) for event in found}


def figures(events: EventMultiplexer) -> dict[str, dict[int, np.ndarray]]:
    """Tag -> step -> decoded figure."""
    tags = [tag for tag in events.Runs()["figures"]["tensors"] if tag.startswith("attention/")]
    found = {}
    for tag in tags:
        of_tag = found.setdefault(tag, {})
        for event in events.Tensors("figures", tag):
            # Width, height, then one encoded figure each.
            for content in event.tensor_proto.string_val[2:]:
                of_tag[event.step] = np.asarray(Image.open(io.BytesIO(content)))
    return found


@pytest.mark.parametrize(("kind", "epochs"), [("soft", 2), ("hard", 2), ("none", 1)])
def test_tensorboard_finds_the_scalars_of_every_epoch(request, kind, epochs):
    events = opened(request.getfixturevalue(f"{kind}_run"))
    wanted = {part: list(names) for part, names in EVERY_RUN.items()}
    wanted["train"] += ATTENTION if kind != "none" else ()
    wanted["train"] += HARD if kind == "hard" else ()
    wanted["validation"] += BOUNDS if kind == "hard" else ()
    for part, names in wanted.items():
        for name in names:
            values = scalars(events, part, name)
            assert list(values) == list(range(epochs)), (part, name)
            defined = np.isfinite(list(values.values()))
            assert defined.all() or name == "bleu_4", (part, name)  # hardly trained
    assert all(0 < value < 1 for value in scalars(events, "train", "beta").values())


@pytest.mark.parametrize(("kind", "epochs"), [("hard", 2), ("none", 1)])
def test_tensorboard_finds_the_attention_figures_of_every_epoch(request, kind, epochs):
    found = figures(opened(request.getfixturevalue(f"{kind}_run")))
    assert len(found) == 2
    for of_tag in found.values():
        assert list(of_tag) == list(range(epochs))
        assert all(f.ndim == 3 and min(f.shape[:2]) >= 64 and f.std() > 0 for f in of_tag.values())


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


def test_the_alarm_has_nothing_to_say_without_attention():
    assert alarms(make_model("none")) == []


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


class Model:
    """As much of a captioner as `CheckpointAndStop` needs."""

    stop_training = False
    epoch = 0


class Kept:
    """Checkpoints that remember what was saved."""

    def __init__(self):
        self.states = []

    def save(self, progress: Progress) -> None:
        self.states.append(Progress(**vars(progress)))


def keep(monkeypatch, scores, monitor="bleu_4", patience=2, progress=None):
    """Epochs with these scores: those that were the best, the states kept, the model."""
    from sat_tf import runs

    best, model, kept = [], Model(), Kept()
    monkeypatch.setattr(runs, "save_weights", lambda model, path: best.append(model.epoch))
    progress = progress or Progress()
    config = FitConfig(monitor=monitor, patience=patience)
    callback = CheckpointAndStop(kept, progress, config, 1, Path("best"), Interrupts())
    callback.set_model(model)
    for epoch, score in enumerate(scores, start=progress.epoch):
        model.epoch = epoch + 1
        callback.on_epoch_begin(epoch)
        callback.on_epoch_end(epoch, {f"val_{monitor}": score})
        if model.stop_training:
            break
    return best, kept.states, model


def test_training_stops_after_patience_epochs_without_a_better_score(monkeypatch):
    best, states, model = keep(monkeypatch, [1.0, 3.0, 2.0, 3.0, 9.0])
    assert best == [1, 2] and model.stop_training and states[-1].stopped
    assert (states[-1].epoch, states[-1].best_epoch, states[-1].best_score) == (4, 2, 3.0)


def test_a_better_score_starts_the_patience_anew(monkeypatch):
    best, states, model = keep(monkeypatch, [1.0, 0.0, 2.0, 0.0, 3.0])
    assert best == [1, 3, 5] and not model.stop_training and states[-1].waited == 0


def test_a_lower_nll_is_better(monkeypatch):
    best, states, model = keep(monkeypatch, [3.0, 2.0, 2.5, 2.0], monitor="nll")
    assert best == [1, 2] and model.stop_training and abs(states[-1].best_score) == 2.0


def decide(monkeypatch, epochs, monitor="bleu_4", patience=9):
    from sat_tf import runs

    monkeypatch.setattr(runs, "save_weights", lambda model, path: None)
    progress, model = Progress(), Model()
    config = FitConfig(monitor=monitor, patience=patience)
    callback = CheckpointAndStop(Kept(), progress, config, 1, Path("best"), Interrupts())
    callback.set_model(model)
    for epoch, scores in enumerate(epochs):
        callback.on_epoch_begin(epoch)
        callback.on_epoch_end(epoch, {f"val_{name}": value for name, value in scores.items()})
    return progress


@pytest.mark.parametrize(
    ("epochs", "best", "rank"),
    [
        # No epoch has a BLEU-4: CIDEr decides, and while that is 0 the nll.
        ([(np.nan, 0, 5.1), (0.0, 0, 4.9), (np.nan, 0, 5.0)], 2, 2),
        ([(np.nan, 0, 4.1), (np.nan, 3, 4.9), (np.nan, 9, 5.0), (np.nan, 8, 3.0)], 3, 1),
        # Once one has, no epoch without counts as better.
        ([(np.nan, 20, 4.1), (2.0, 3, 4.9), (np.nan, 30, 4.0)], 2, 0),
        ([(2.0, 3, 4.9), (3.0, 1, 4.9), (0.0, 30, 4.0)], 2, 0),
    ],
)
def test_an_undefined_bleu_decides_nothing(monkeypatch, epochs, best, rank):
    scores = [dict(zip(("bleu_4", "cider", "nll"), one, strict=True)) for one in epochs]
    progress = decide(monkeypatch, scores)
    assert (progress.best_epoch, progress.best_rank) == (best, rank)
    assert progress.waited == len(epochs) - best


def test_epochs_without_bleu_are_waited_for_only_if_they_get_no_better(monkeypatch):
    better = [{"bleu_4": np.nan, "cider": 0.0, "nll": 5.0 - epoch} for epoch in range(3)]
    assert not decide(monkeypatch, better, patience=1).stopped
    worse = [{"bleu_4": np.nan, "cider": 0.0, "nll": 5.0 + epoch} for epoch in range(3)]
    assert decide(monkeypatch, worse, patience=2).stopped


def test_patience_resumes_where_a_checkpoint_left_it(monkeypatch):
    progress = Progress(epoch=3, best_epoch=2, best_score=5.0, waited=1)
    best, states, model = keep(monkeypatch, [4.0], progress=progress)
    assert best == [] and model.stop_training and states[-1].epoch == 4


def test_a_score_that_is_no_number_never_becomes_the_best(monkeypatch):
    best, states, _ = keep(monkeypatch, [float("nan"), 1.0], monitor="nll", patience=5)
    assert best == [2] and states[-1].best_score == -1.0


def test_the_time_of_all_epochs_adds_up(monkeypatch):
    from training.loop import callbacks

    times = iter([0.0, 2.0, 10.0, 13.0])
    monkeypatch.setattr(callbacks.time, "monotonic", lambda: next(times))
    assert keep(monkeypatch, [1.0, 2.0])[1][-1].seconds == 5.0


def test_a_loss_that_is_not_finite_ends_training_before_its_weights_count_as_best(monkeypatch):
    from sat_tf import runs

    best = []
    monkeypatch.setattr(runs, "save_weights", lambda model, path: best.append(path))
    callback = CheckpointAndStop(Kept(), Progress(), FitConfig(), 1, Path("best"), Interrupts())
    callback.set_model(Model())
    callback.on_epoch_begin(0)
    with pytest.raises(ValueError, match=r"loss of epoch 1 is nan: .*optimizer\.learning-rate"):
        callback.on_epoch_end(0, {"loss": np.nan, "val_bleu_4": 0.0})
    assert not best
