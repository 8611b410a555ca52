"""Keras layers of a captioner: encoder, attention, decoder and their parts."""

from sat_tf.layers.attention import BahdanauAttention
from sat_tf.layers.decoder import RNNDecoder
from sat_tf.layers.encoder import Encoder
from sat_tf.layers.lstm import AttentionLSTMCell, DeepOutput, InitialState

__all__ = [
    "AttentionLSTMCell",
    "BahdanauAttention",
    "DeepOutput",
    "Encoder",
    "InitialState",
    "RNNDecoder",
]
