"""Parts of a search equal the whole, chosen by the device that runs them; best tokens a sort."""

import numpy as np
import pytest
import tensorflow as tf

from sat_tf.layers.attention import additive_scores
from sat_tf.ops.search import in_parts, runs_on_cpu, top_tokens

G, L, A = 2, 5, 6
WRAPS = pytest.mark.parametrize("wrap", [lambda f: f, tf.function], ids=["eager", "graph"])


def search_scores(*factors):
    return in_parts(additive_scores, *factors)


def make_factors(images, rows=G):
    rng = np.random.default_rng(0)
    shapes = [images, rows, A], [images, L, A], [A]
    return [tf.constant(rng.normal(size=shape), tf.float32) for shape in shapes]


@pytest.mark.parametrize("images", [0, 1, 3, 20])
@WRAPS
def test_scores_in_parts_equal_the_whole(wrap, images, monkeypatch):
    factors = make_factors(images)
    whole = wrap(additive_scores)(*factors)
    np.testing.assert_array_equal(wrap(search_scores)(*factors), whole)
    monkeypatch.setattr("sat_tf.ops.search.CACHE_SIZE", 0)
    parts = wrap(lambda *factors: search_scores(*factors))(*factors)
    assert parts.shape == (images * G, L)
    np.testing.assert_allclose(parts, whole, rtol=1e-5, atol=1e-6)


@WRAPS
def test_the_running_device_is_asked(wrap):
    assert wrap(lambda: runs_on_cpu())()
    assert not tf.function(lambda: runs_on_cpu(), jit_compile=True)()


def test_an_exported_search_asks_the_device_that_serves_it(tmp_path, monkeypatch):
    """The graph holds both paths and the question, whatever the exporting machine has."""
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: ["GPU"])
    specs = [tf.TensorSpec([None, None, A]), tf.TensorSpec([None, L, A]), tf.TensorSpec([A])]
    module = tf.Module()
    module.scores = tf.function(search_scores, input_signature=specs)
    tf.saved_model.save(module, tmp_path)
    again = tf.saved_model.load(tmp_path)
    operations = {o.type for o in again.scores.concrete_functions[0].graph.get_operations()}
    assert {"DeviceIndex"} <= operations and operations & {"If", "StatelessIf"}
    factors = make_factors(3)
    np.testing.assert_allclose(again.scores(*factors), additive_scores(*factors), 1e-6)


@pytest.mark.parametrize("rows", [1, G])
def test_scores_are_no_product_of_four_axes(rows):
    """TensorFlow 2.21 corrupts memory in those (issue 117700) where oneDNN has AVX-512."""

    @tf.function
    def gradient(queries, keys, vector):
        with tf.GradientTape() as tape:
            tape.watch(queries)
            found = additive_scores(queries, keys, vector)
        return tape.gradient(found, queries)

    operations = gradient.get_concrete_function(*make_factors(3, rows)).graph.get_operations()
    products = [operation for operation in operations if "MatMul" in operation.type]
    assert products
    for product in products:
        assert all(axes.shape.rank == 2 for axes in product.inputs), product.name


@pytest.mark.parametrize("vocabulary", [640, 641, 2540, 2559])
@pytest.mark.parametrize("levels", [3, 40, 1_000_000])
def test_the_best_tokens_are_those_of_a_whole_sort(vocabulary, levels):
    # With few levels most log-probabilities are ties, which the lower token has to win.
    rng = np.random.default_rng(vocabulary + levels)
    log_probs = -rng.integers(0, levels, [200, vocabulary]).astype(np.float32)
    log_probs[:, rng.integers(0, vocabulary, vocabulary // 3)] = -np.inf
    found, tokens = top_tokens(tf.constant(log_probs), 5)
    order = np.argsort(-log_probs, axis=1, kind="stable")[:, :5]
    np.testing.assert_array_equal(tokens, order)
    np.testing.assert_array_equal(found, np.take_along_axis(log_probs, order, axis=1))


def test_tokens_stay_within_the_vocabulary_if_few_are_allowed():
    log_probs = np.full([3, 641], -np.inf, np.float32)
    log_probs[0, 640], log_probs[1, 2:4] = -1.0, -2.0
    found, tokens = top_tokens(tf.constant(log_probs), 5)
    assert np.all((np.asarray(tokens) >= 0) & (np.asarray(tokens) < 641))
    np.testing.assert_array_equal(np.isfinite(found).sum(axis=1), [1, 2, 0])
    assert tokens[0, 0] == 640
    np.testing.assert_array_equal(tokens[1, :2], [2, 3])
