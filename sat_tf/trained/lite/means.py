"""Measures on photographs what rounding an encoder to int8 moves; see `int8`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from sat_tf.errors import invalid_value
from sat_tf.trained.lite.int8 import large_convolutions, rounded


def measure_means(graph: bytes, images: Iterable[np.ndarray]) -> list[np.ndarray]:
    """Measures how far int8 moves the means of the channels of large convolutions.

    A convolution is linear: rounding moves its mean by what the errors of its weights make of its
    mean input.

    Args:
        graph: Content of a float32 graph.
        images: float32 `[S, S, 3]` each, as the encoder sees it.

    Returns:
        As `int8.moved_means`.

    Raises:
        ValueError: There are no images.

    References:
        Nagel et al. (2019), arXiv:1906.04721, section 4.2.
    """
    model = schema.ModelT.InitFromPackedBuf(bytearray(graph), 0)
    found = [(operator, values) for operator, _, values, _ in large_convolutions(model, schema)]
    interpreter = Interpreter(
        model_content=graph,
        experimental_preserve_all_tensors=True,
        # Delegates would keep to themselves what is between their operations.
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )
    interpreter.allocate_tensors()
    (pixels,), sums, count = interpreter.get_input_details(), [0.0] * len(found), 0
    for image in images:
        interpreter.set_tensor(pixels["index"], image[np.newaxis])
        interpreter.invoke()
        inputs = (interpreter.get_tensor(operator.inputs[0])[0] for operator, _ in found)
        sums, count = [total + one for total, one in zip(sums, inputs, strict=True)], count + 1
    if not count:
        raise invalid_value("images", "at least one that can be read", "none")
    means = []
    for (operator, values), total in zip(found, sums, strict=True):
        levels, scales = rounded(values)
        errors = values - levels * scales[:, None, None, None]
        means.append(_mean_output(total / count, errors, operator.builtinOptions))
    return means


def _mean_output(image: np.ndarray, weights: np.ndarray, options: Any) -> np.ndarray:
    """Returns the mean `[N]` over the places of a convolution of `[h, w, C]`.

    Args:
        image: The input.
        weights: `[N, kh, kw, C]`.
        options: Strides, dilations and padding, as LiteRT has them.
    """
    sides = zip(
        image.shape[:2],
        weights.shape[1:3],
        (options.strideH, options.strideW),
        (options.dilationHFactor, options.dilationWFactor),
        strict=True,
    )
    pads, spans = [], []
    for size, taps, stride, dilation in sides:
        reach, pad = dilation * (taps - 1) + 1, 0
        if options.padding == schema.Padding.SAME:
            pad = max((-(-size // stride) - 1) * stride + reach - size, 0)
        last = size + pad - reach  # the first tap of the last place
        pads.append((pad // 2, pad - pad // 2))
        spans.append([slice(dilation * t, dilation * t + last + 1, stride) for t in range(taps)])
    padded, total = np.pad(image, [*pads, (0, 0)]), np.zeros(len(weights))
    for y, x in np.ndindex(weights.shape[1:3]):
        total += weights[:, y, x] @ padded[spans[0][y], spans[1][x]].mean(axis=(0, 1))
    return total.astype(np.float32)
