"""Digit portions: the equations in NumPy, hard attention's gradient by enumeration, scores."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from digits.config import PortionsConfig
from digits.models.portions import Portions
from tests.digits.models.small_models import SEED, terms_of
from tests.sat_tf.layers.decoder_numpy import softmax
from tests.sat_tf.objectives.decoder_outputs import Prescribed

SIZES = {"filters": 1, "annotation_dim": 4, "query_dim": 3, "attention_dim": 5, "hidden_dim": 6}
LABELS = np.array([[9, 1, 9], [0, 1, 2]], np.int32)


def make_model(portions: int = 3, **options) -> Portions:
    model = Portions(PortionsConfig(**SIZES | options), portions)
    rng = np.random.default_rng(0)
    model.set_weights([rng.normal(0.0, 0.4, w.shape) for w in model.weights])
    return model


def make_batch(labels: np.ndarray = LABELS) -> dict[str, tf.Tensor]:
    rng = np.random.default_rng(1)
    images = rng.uniform(size=[len(labels), 28, 28 * labels.shape[1], 1]).astype(np.float32)
    return {"images": tf.constant(images), "labels": tf.constant(labels)}


def annotations_of(model: Portions, image: np.ndarray) -> np.ndarray:
    """One CNN for all portions, cut out one by one."""
    cut = [image[:, 28 * n : 28 * (n + 1)] for n in range(model.portions)]
    return np.stack([model.annotation(model.encoder(part[None]))[0].numpy() for part in cut])


def slots_of(model: Portions, image: np.ndarray) -> np.ndarray:
    """Annotations of the portions and of the null slot."""
    return np.concatenate([annotations_of(model, image), model.null.annotation.numpy()[0]])


def answer(model: Portions, context: np.ndarray, query: np.ndarray) -> float:
    """`w . relu(W [z, q] + b) + c`."""
    first, bias, last, offset = (w.numpy() for w in model.answer_layers.weights)
    hidden = np.maximum(np.concatenate([context, query]) @ first + bias, 0.0)
    return (hidden @ last + offset)[0]


def scores_of(model: Portions, slots: np.ndarray, query: np.ndarray) -> np.ndarray:
    """`v . tanh(W_a a_i + W_h q + b)`."""
    key, bias = (w.numpy() for w in model.attention.key_projection.weights)
    (project,) = (w.numpy() for w in model.attention.query_projection.weights)
    return np.tanh(slots @ key + query @ project + bias) @ model.attention.score_vector.numpy()


@pytest.mark.parametrize("queries", ["one", "all"])
def test_soft_attention_is_its_equations(queries):
    model, batch = make_model(queries=queries), make_batch()
    answers = model(batch["images"])
    rows = itertools.product(batch["images"].numpy(), model.queries.embeddings.numpy())
    for row, (image, query) in enumerate(rows):
        slots = slots_of(model, image)
        scores = scores_of(model, slots, query)
        np.testing.assert_allclose(answers.alignment_scores[row], scores, rtol=1e-4, atol=1e-5)
        wanted = answer(model, softmax(scores) @ slots, query)
        np.testing.assert_allclose(answers.logits[row], wanted, rtol=1e-4, atol=1e-5)
    assert len(answers.logits) == row + 1 == 2 * len(model.labels)


def test_hard_attention_takes_what_it_drew(monkeypatch):
    model, batch, drawn = make_model(attention="hard"), make_batch(), [0, 2]
    monkeypatch.setattr("sat_tf.layers.attention.multinoulli", Prescribed([[s] for s in drawn]))
    answers = model(batch["images"], selection="sample", seed=SEED)
    query = model.queries.embeddings.numpy()[0]
    for row, (image, slot) in enumerate(zip(batch["images"].numpy(), drawn, strict=True)):
        wanted = answer(model, slots_of(model, image)[slot], query)
        np.testing.assert_allclose(answers.logits[row], wanted, rtol=1e-4, atol=1e-5)
        log_alpha = np.log(softmax(answers.alignment_scores[row].numpy()))
        np.testing.assert_allclose(answers.log_prob[row], log_alpha[slot], rtol=1e-4)


def flat(gradients) -> np.ndarray:
    return np.concatenate([np.ravel(tf.convert_to_tensor(g)) for g in gradients if g is not None])


def test_the_expected_gradient_is_the_bound_s(monkeypatch):
    """Every way to draw, weighed with its probability, against `d E[log p(y|s)]` by enumeration."""
    model = make_model(2, attention="hard", samples=2)
    batch, slots = make_batch(np.array([[9, 1]])), 3

    def draw(*drawn: int) -> None:
        fake = Prescribed([[slot] for slot in drawn])
        monkeypatch.setattr("sat_tf.layers.attention.multinoulli", fake)

    weights = model.trainable_weights
    with tf.GradientTape() as tape:
        answers = model(batch["images"])
        log_alpha = tf.nn.log_softmax(answers.alignment_scores)[0]
        expected = 0.0
        for slot in range(slots):
            draw(slot)
            logit = model(batch["images"], selection="sample", seed=SEED).logits[0]
            expected += tf.exp(log_alpha[slot]) * tf.math.log_sigmoid(logit)  # a 9 is there
    wanted = -flat(tape.gradient(expected, weights))
    probability = np.exp(log_alpha.numpy())
    total = np.zeros_like(wanted)
    for drawn in itertools.product(range(slots), repeat=2):
        draw(*drawn)
        with tf.GradientTape() as tape:
            loss, logs = terms_of(model, batch)
        total += np.prod(probability[list(drawn)]) * flat(tape.gradient(loss, weights))
    np.testing.assert_allclose(total, wanted, rtol=2e-3, atol=2e-5 * np.abs(wanted).max() + 1e-6)
    assert np.abs(wanted).max() > 1e-3
    assert set(logs) == set(model.objective.log_names)


def test_soft_attention_minimises_the_cross_entropy():
    model, batch = make_model(queries="all"), make_batch()
    loss, logs = terms_of(model, batch)
    present = (LABELS[:, :, None] == np.arange(10)).any(axis=1)
    p = 1.0 / (1.0 + np.exp(-model(batch["images"]).logits.numpy().reshape(present.shape)))
    assert float(loss) == pytest.approx(-np.log(np.where(present, p, 1.0 - p)).mean(), rel=1e-4)
    assert 0.0 < float(logs["alpha_entropy"]) <= 1.0


def test_figures_count_labels_and_places(monkeypatch):
    model, batch = make_model(queries="all"), make_batch()
    scores = np.zeros([2, 10, 4], np.float32)
    scores[..., 3] = 1.0  # all rest on the null slot but
    scores[0, 1, 1] = scores[1, 0, 0] = scores[1, 1, 2] = 2.0  # right, right, wrong
    logits = np.full([2, 10], -1.0)
    logits[0, [1, 9]] = logits[1, [0, 1, 5]] = 1.0  # the 2 is missed, the 5 made up
    answers = model(batch["images"])._replace(
        alignment_scores=tf.reshape(scores, [20, 4]), logits=tf.reshape(logits, [20])
    )
    monkeypatch.setattr(Portions, "infer", lambda *_: answers)
    found = {}
    for name, (values, weights) in model.scores(batch, SEED).items():
        found[name] = np.average(values, weights=weights)
    # Two 9s have no one place; 1 | 0, 1, 2 have: two of four are right.
    assert found == pytest.approx(
        {
            "error": 10.0,
            "presence_accuracy": 90.0,
            "location_accuracy": 50.0,
            "null_accuracy": 100.0,
        }
    )
