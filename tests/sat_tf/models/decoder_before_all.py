"""A model of one's own around a decoder, fitted before anything else of Keras was made or drawn."""

from __future__ import annotations

import keras
import numpy as np

import sat_tf


class Model(keras.Model):
    """Words to logits, as `fit` builds it."""

    def __init__(self):
        super().__init__()
        self.decoder = sat_tf.RNNDecoder(20, embedding_dim=6, attention_dim=7, hidden_dim=8)

    def call(self, inputs):
        return self.decoder(inputs[0], inputs[1]).logits


if __name__ == "__main__":
    annotations, words = np.ones([4, 5, 3], "float32"), np.ones([4, 6], "int32")
    model = Model()
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit((annotations, words), words, verbose=0)
    sat_tf.RNNDecoder(20, embedding_dim=6, attention_dim=7, hidden_dim=8)(annotations, words)
