"""A SavedModel is written whole or with a clear error, and loaded from any folder."""

import shutil

import pytest
import tensorflow as tf

from serving.model_server import Servable
from serving.signatures import Signature, save_signatures, write_warmup
from serving.versions import write_version
from tests.full_disk import full_disk
from tests.serving import toys


def test_a_version_is_loaded_from_a_folder_whose_name_looks_like_a_pattern(toy_exports, tmp_path):
    folder = shutil.copytree(toy_exports / "1", tmp_path / "exports [a]*" / "1")
    response = Servable(folder).predict(toys.predict_request(b"ok"))
    assert toys.caption_of(response) == "a cat 1"


def a_signature() -> Signature:
    """A signature with a megabyte of weights."""
    weights = tf.Variable(tf.zeros([2**18]))
    spec = tf.TensorSpec([None], tf.string, name="image_bytes")
    return Signature(
        "other", lambda images: {"sizes": tf.size(images) + tf.size(weights[:9])}, spec
    )


@pytest.mark.parametrize("part", ["variables", "warm-up"])
def test_a_full_disk_is_a_clear_error_and_leaves_nothing(tmp_path, part):
    signature, out = a_signature(), tmp_path / "out"

    def write(draft) -> None:
        if part == "variables":
            save_signatures([signature], draft)
        else:
            write_warmup(draft, [signature] * 20, 256)

    message = f"cannot be written to {out}: .*too large"
    with full_disk(4096), pytest.raises(OSError, match=message):
        write_version(out, write)
    assert list(out.iterdir()) == []
