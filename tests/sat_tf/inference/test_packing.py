"""Weights rounded to 8 and 10 bits: small errors, stable bytes, and no code in the file."""

import io
import zipfile

import numpy as np
import pytest

from sat_tf.inference.packing import pack
from sat_tf.inference.unpacking import unpack

RNG = np.random.default_rng(0)
ARRAYS = {
    "encoder/kernel": RNG.normal(0, 0.05, [3, 3, 16, 8]).astype(np.float32),
    "encoder/bias": RNG.normal(size=8).astype(np.float32),
    "decoder/embedding": RNG.normal(0, [1e-6, 1.0, 1e3], [140, 3]).astype(np.float32),
    "decoder/zero": np.zeros([4, 5], np.float32),
    "decoder/scalar": np.float32(2.5).reshape(()),
}


@pytest.mark.parametrize(("bits", "most"), [(8, 127), (10, 511)])
def test_matrices_lose_half_a_step_of_their_group_and_vectors_nothing(bits, most):
    found = unpack(pack(ARRAYS, bits))
    assert list(found) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert found[name].dtype == np.float32 and found[name].shape == array.shape
        if array.ndim < 2:
            np.testing.assert_array_equal(found[name], array)
            continue
        peaks = np.abs(array.reshape(-1, array.shape[-1])).max(0)
        # The peak itself may lose more than half a step of 10 bits, as its scale is rounded too.
        step = np.maximum(peaks / most, 2.0**-24)
        assert (np.abs(found[name] - array) <= {8: 0.51, 10: 0.63}[bits] * step).all()


@pytest.mark.parametrize("peak", [1e-2, 1e-4, 1e-7])
def test_small_weights_are_rounded_no_coarser_than_large_ones(peak):
    weights = np.random.default_rng(0).uniform(-peak, peak, [128, 64]).astype(np.float32)
    for bits in (8, 10):
        error = np.abs(unpack(pack({"a": weights}, bits))["a"] - weights).max()
        assert error <= 0.501 * peak / (2 ** (bits - 1) - 1)


def test_each_channel_of_a_depthwise_kernel_has_its_own_scale():
    channels = np.array([1e-3, 1.0, 1e3], np.float32).reshape(1, 1, 3, 1)
    kernel = np.random.default_rng(0).normal(size=[3, 3, 3, 1]).astype(np.float32) * channels
    found = unpack(pack({"kernel": kernel}))["kernel"]
    assert (np.abs(found - kernel) <= 0.51 / 127 * np.abs(kernel).max((0, 1))).all()


def test_packing_again_changes_nothing_and_weights_have_to_be_finite():
    content = pack(ARRAYS)
    assert pack(unpack(content)) == content
    with pytest.raises(ValueError, match="finite weights, got others in encoder/kernel"):
        pack({"encoder/kernel": np.full([2, 2], np.nan, np.float32)})


def pickled() -> bytes:
    file = io.BytesIO()
    np.savez(file, weights=np.array([object()], dtype=object))
    return file.getvalue()


def archive(**arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez(file, **{name.replace("__", ":"): array for name, array in arrays.items()})
    return file.getvalue()


def huge() -> bytes:
    """An array of three bytes with a header of 10^12."""
    entry, file = io.BytesIO(), io.BytesIO()
    header = {"descr": "|i1", "fortran_order": False, "shape": (10**12,)}
    np.lib.format.write_array_header_1_0(entry, header)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("weights.npy", entry.getvalue() + b"abc")
    return file.getvalue()


LEVELS = np.zeros([4, 5], np.int8)


@pytest.mark.parametrize(
    "content",
    [
        b"text",
        pack(ARRAYS)[:200],
        pickled(),
        huge(),
        archive(w=np.zeros([2])),
        archive(w=np.int8(1).reshape(()), w__scale=np.ones([1], np.float16)),
        archive(w=LEVELS, w__scale=np.ones([2, 5], np.float16)),
        archive(w=LEVELS, w__scale=np.ones([1, 5], "f2"), w__low2=np.ones([5], "f4")),
    ],
)
def test_arrays_that_cannot_be_those_of_pack_are_errors(content):
    with pytest.raises(ValueError, match="The weights are damaged"):
        unpack(content)
