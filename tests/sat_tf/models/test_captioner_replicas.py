"""The captioner on several devices: the same training, different draws."""

import numpy as np
import pytest
import tensorflow as tf

from sat_tf.captioner import Captioner
from tests.sat_tf.models.captioner_models import (
    VOCABULARY,
    as_dataset,
    compile_model,
    make_batch,
    make_config,
    make_model,
    randomise,
)
from training.run.strategy import make_strategy


def trained(strategy, config, weights, batch):
    """A step an epoch: within one, Keras reports means over the replicas' own means."""
    with strategy.scope():
        model = Captioner(config, VOCABULARY)
        model.set_weights(weights)
        compile_model(model, clip_norm=1.0)
    # Two captions on one replica and one on the other; two on each; one and none.
    data = as_dataset(batch, 4)
    data = as_dataset(batch, 3).skip(1).take(1).concatenate(data.take(1)).concatenate(data.skip(2))
    options = {"epochs": 3, "steps_per_epoch": 1, "shuffle": False, "verbose": 0}
    logs = model.fit(data, **options).history
    return model, [{name: logs[name][epoch] for name in logs} for epoch in range(3)]


# Hard attention without its draws: the terms that remain do not depend on the replica.
ALL_EXPECTED = {"expectation_probability": 1.0, "entropy_weight": 0.2}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "options", "by_image"),
    [
        ("soft", {}, True),
        ("hard", {"preset": "arctic", **ALL_EXPECTED}, False),
        ("hard", {"preset": "vimco", "samples": 2, **ALL_EXPECTED}, True),
    ],
)
def test_two_replicas_train_as_one_device_does(kind, options, by_image):
    config = make_config(kind, **options)
    weights = randomise(make_model(kind, **options), 0.3).get_weights()
    batch = make_batch(9)
    if by_image:  # of which one is on both replicas
        batch["image_index"] = np.array([5, 5, 5, 0, 0, 0, 2, 2, 2], np.int32)
        batch["annotations"] = batch["annotations"][batch["image_index"]]
    one, expected = trained(tf.distribute.get_strategy(), config, weights, batch)
    two, logs = trained(make_strategy("mirrored"), config, weights, batch)
    assert len(logs) == len(expected) == 3
    for step, (got, wanted) in enumerate(zip(logs, expected, strict=True)):
        for name in set(wanted) - {"advantage_variance"}:
            np.testing.assert_allclose(
                got[name], wanted[name], rtol=1e-4, atol=1e-6, err_msg=f"{name}, step {step}"
            )
    assert min(logs["gradient_norm"] for logs in expected) > 1.0  # Clipping is at work.
    for variable, other in zip(one.weights, two.weights, strict=True):
        np.testing.assert_allclose(
            other.numpy(), variable.numpy(), rtol=1e-3, atol=2e-5, err_msg=variable.path
        )


@pytest.mark.parametrize(("preset", "shared"), [("arctic", True), ("paper", False)])
def test_arctic_draws_one_switch_for_the_minibatch_of_all_replicas(preset, shared):
    strategy = make_strategy("mirrored")
    with strategy.scope():
        model = compile_model(make_model("hard", preset=preset), seed=3)

    @tf.function(autograph=False)
    def draw():
        return model.objective.draw_expectation(model.step_seed(), 3)

    draws = []
    for _ in range(12):
        draws.append(np.stack(strategy.experimental_local_results(strategy.run(draw))))
        model.optimizer.iterations.assign_add(1)
    draws = np.stack(draws)  # [steps, replicas, captions]
    assert np.any(draws) and not np.all(draws)
    assert bool(np.all(draws == draws[:, :1, :1])) is shared


def test_evaluation_over_two_replicas_is_that_of_one_device():
    batch = make_batch(9)
    data = as_dataset(batch, 4)  # one caption in the last batch, so none on the second replica
    one = compile_model(randomise(make_model()))
    with make_strategy("mirrored").scope():
        two = compile_model(make_model())
        two.set_weights(one.get_weights())
    expected = one.evaluate(data, verbose=0)
    assert isinstance(expected, float)
    np.testing.assert_allclose(two.evaluate(data, verbose=0), expected, rtol=1e-5)
    # `fit` validates after its step, whose weights the two share.
    for model in (one, two):
        logs = model.fit(data.take(1), validation_data=data, shuffle=False, verbose=0).history
        (found,) = logs["val_nll"]
        expected = one.evaluate(data, verbose=0)
        np.testing.assert_allclose(found, expected, rtol=1e-4)
        assert "loss" in logs and "val_loss" not in logs


def test_the_first_baseline_is_the_mean_return_over_both_replicas():
    strategy = make_strategy("mirrored")
    with strategy.scope():
        model = compile_model(make_model("hard", expectation_probability=0.0))
    logs = model.fit(as_dataset(make_batch(3), 3), verbose=0).history
    np.testing.assert_allclose(logs["baseline"], logs["reward"], rtol=1e-5)
    np.testing.assert_allclose(model.baseline.value, logs["reward"], rtol=1e-5)
