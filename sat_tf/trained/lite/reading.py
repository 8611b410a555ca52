"""Reads a sentence with LiteRT graphs, each word from those before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sat_tf.trained.explain import WordByWord
from sat_tf.trained.lite.runtime import STATE, Graph
from sat_tf.vocabulary import START


def read_tokens(
    start: Graph, step: Graph, encoded: Mapping[str, np.ndarray], tokens: Sequence[int], rows: int
) -> WordByWord:
    """Reads tokens, each from the true ones before it.

    Where all annotations are their mean, any map gives the context of a uniform one. So a step
    with this mean in their place, from a state of the real maps, is a step under a uniform map.

    Args:
        start: The graph that turns annotations into the first state.
        step: The graph that takes a step.
        encoded: Outputs of the encoder's graph.
        tokens: Ids, T of them.
        rows: K, which the step takes at once.
    """
    attended = {**encoded, **start(**encoded)}
    state = {name: np.repeat(attended.pop(name), rows, axis=0) for name in STATE}
    step.set(**attended)
    words = np.array([START, *tokens[:-1]], np.int32)
    states, outputs = [], []
    for word in words:
        states.append(state)
        outputs.append(step(words=np.full(rows, word), **state))
        state = {name: outputs[-1][name] for name in STATE}
    log_probs = np.array([o["log_probs"][0, n] for o, n in zip(outputs, tokens, strict=True)])
    if "alpha" not in outputs[0]:
        return WordByWord(log_probs, None, None, None)
    annotations, uniform = attended["annotations"], []
    mean = annotations.mean(axis=1, keepdims=True)
    step.set(annotations=np.broadcast_to(mean, annotations.shape))
    for first in range(0, len(words), rows):
        place = np.arange(first, first + rows) % len(words)  # rows beyond the last are not read
        before = {name: np.stack([states[t][name][0] for t in place]) for name in STATE}
        found = step(words=words[place], **before)["log_probs"]
        uniform += [row[n] for row, n in zip(found, tokens[first:], strict=False)]
    alpha, beta = (np.stack([one[name][0] for one in outputs]) for name in ("alpha", "beta"))
    return WordByWord(log_probs, np.array(uniform), alpha, beta)
