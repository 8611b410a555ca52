"""Samples of a caption and captions of an image, decoded side by side."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.sat_tf.layers.decoder_numpy import (
    KINDS,
    SAMPLED,
    SEED,
    B,
    D,
    G,
    K,
    L,
    T,
    make_batch,
    make_decoder,
    random,
)

ROWS = 3 * np.arange(B)


@pytest.mark.parametrize("previous_word", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_samples_share_all_but_where_they_look(kind, previous_word):
    """Without a draw they are the same rows, dropout masks included; so are their gradients."""
    attends, selection = KINDS[kind]["attends"], KINDS[kind]["selection"]
    names = ("annotation", "initial", "embedding", "hidden", "output")
    noise = {f"{name}_dropout": 0.5 for name in names}
    noise["attention_previous_word"] = previous_word
    decoder = make_decoder(attends, initial_layers=2, **noise)
    annotations, words = make_batch()
    target = random(B, T, K, seed=30)

    def run(samples):
        with tf.GradientTape() as tape:
            output = decoder(
                annotations, words, selection=selection, seed=SEED, training=True, samples=samples
            )
            logits = tf.reshape(output.logits, [B, samples, T, K])
            loss = tf.reduce_mean(tf.reduce_sum(target[:, None] * logits, axis=[0, 2, 3]))
        return output, tape.gradient(loss, decoder.trainable_variables)

    (one, gradients), (three, others) = run(1), run(3)
    for part, wanted in zip(three, one, strict=True):
        for sample in range(3):
            np.testing.assert_allclose(part.numpy()[ROWS + sample], wanted, rtol=1e-4, atol=1e-5)
    for got, wanted in zip(others, gradients, strict=True):
        if got is not None or wanted is not None:
            np.testing.assert_allclose(*map(tf.convert_to_tensor, (got, wanted)), 2e-4, 1e-4)


def test_samples_are_drawn_each_for_itself_from_one_set_of_keys(monkeypatch):
    decoder = make_decoder()
    annotations, words = make_batch()
    shapes, keys = [], decoder.attention.keys

    def spy(annotations):
        shapes.append(annotations.shape)
        return keys(annotations)

    monkeypatch.setattr(decoder.attention, "keys", spy)
    switch = tf.constant([True, False])
    options = {"selection": "sample", "seed": SEED, "use_expectation": switch, "samples": 20}
    output = decoder(annotations, words, **options)
    assert shapes == [annotations.shape]
    rows = tf.reshape(output.log_prob, [B, 20, T]).numpy()
    np.testing.assert_array_equal(rows[0], np.zeros([20, T]))
    assert all(len(np.unique(rows[1, :, t])) > 1 for t in range(T))
    soft = decoder(annotations, words)
    np.testing.assert_allclose(output.logits[:20], tf.repeat(soft.logits[:1], 20, axis=0), 1e-4)


@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize("kind", [*KINDS, "hard"])
def test_captions_of_an_image_are_taught_as_if_each_had_the_image_for_itself(kind, samples):
    attends, selection = (KINDS | {"hard": SAMPLED})[kind].values()
    decoder = make_decoder(attends, initial_layers=2)
    annotations, _ = make_batch()
    words = np.random.default_rng(2).integers(0, K, [B * G, T]).astype(np.int32)
    target = random(B * G * samples, T, K, seed=30)

    def run(annotations, captions):
        annotations = tf.constant(annotations)
        with tf.GradientTape() as tape:
            tape.watch(annotations)
            options = {"selection": selection, "seed": SEED, "samples": samples}
            output = decoder(annotations, words, captions=captions, **options)
            loss = tf.reduce_sum(target * output.logits) + tf.reduce_sum(output.log_prob)
        of_annotations = tape.gradient(loss, annotations)
        return output, tf.reduce_sum(tf.reshape(of_annotations, [B, -1, L, D]), axis=1)

    (together, gradient), (apart, wanted) = (
        run(annotations, G),
        run(np.repeat(annotations, G, axis=0), 1),
    )
    for got, row in zip(together, apart, strict=True):
        np.testing.assert_allclose(got, row, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(gradient, wanted, rtol=1e-3, atol=1e-4)
