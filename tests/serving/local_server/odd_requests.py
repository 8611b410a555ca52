"""Requests that are odd or spoilt, from a seed."""

from __future__ import annotations

import random

from serving.client import protocol


def odd_request(rng: random.Random) -> bytes:
    """A well-formed request of a random model, signature, filter and tensors."""
    request = protocol.PredictRequest()
    request.model_spec.name = rng.choice(["captioner"] * 8 + ["", "x"])
    if rng.random() < 0.1:
        request.model_spec.version.value = rng.choice([-1, 0, 1, 3, 2**62])
    if rng.random() < 0.1:
        request.model_spec.version_label = rng.choice(["", "stable", "x"])
    request.model_spec.signature_name = rng.choice(
        ["serving_default", "pixels", "every_beam", "", "__saved_model_init_op"]
    )
    outputs = ["captions", "scores", "valid", "reasons", "lengths", "token_ids", "attention", "x"]
    request.output_filter.extend(rng.choices(outputs, k=rng.choice([0, 0, 1, 2, 4])))
    for _ in range(rng.choice([0, 1, 1, 1, 1, 2])):
        _fill(request.inputs[rng.choice(["image_bytes", "image_bytes", "pixels"])], rng)
    return request.SerializeToString()


def _fill(tensor, rng: random.Random) -> None:
    """Gives a tensor a random dtype and shape, and values that need not fit them."""
    tensor.dtype = rng.choice([7, 7, 4, 1, rng.randrange(0, 130), 1000])
    for _ in range(rng.choice([0, 1, 1, 2, 3, 4, 4, 32, 33, 100, 255])):
        tensor.tensor_shape.dim.add(size=rng.choice([1, 1, 1, 2, 3, 0, -1, 2**31, 2**62]))
    if rng.random() < 0.1:
        tensor.tensor_shape.MergeFromString(b"\x18\1")  # `unknown_rank`, which clients never set
    tensor.string_val.extend(rng.randbytes(rng.randrange(9)) for _ in range(rng.randrange(3)))
    tensor.int_val.extend(rng.randrange(256) for _ in range(rng.randrange(3)))
    if rng.random() < 0.2:
        tensor.float_val.extend([1.0, float("nan")])
    if rng.random() < 0.3:
        tensor.tensor_content = rng.randbytes(rng.choice([1, 3, 12, 48]))


def mutate(content: bytes, rng: random.Random) -> bytes:
    """Changes some bytes, cuts the end off or repeats a part."""
    changed = bytearray(content or b"\0")
    for _ in range(rng.randrange(1, 8)):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    if rng.random() < 0.3:
        del changed[rng.randrange(len(changed)) :]
    if rng.random() < 0.2:
        start = rng.randrange(len(changed) + 1)
        changed[start:start] = changed[start : start + rng.randrange(1000)] * rng.randrange(1, 20)
    return bytes(changed)
