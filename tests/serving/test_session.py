"""A SavedModel is loaded from any folder."""

from __future__ import annotations

import shutil

import pytest

from serving.saved_model import load_session


@pytest.mark.parametrize("rewrite", [True, False])
def test_a_version_is_loaded_from_a_folder_whose_name_looks_like_a_pattern(
    toy_exports, tmp_path, rewrite
):
    folder = shutil.copytree(toy_exports / "1", tmp_path / "exports [a]*" / "1")
    session, graph = load_session(folder, threads=1, rewrite=rewrite)
    with session:
        signature = graph.signature_def["serving_default"]
        feed, fetch = signature.inputs["image_bytes"].name, signature.outputs["captions"].name
        assert session.run(fetch, {feed: [b"ok"]})[0, 0] == b"a cat 1"


def test_a_folder_without_a_model_is_an_error(tmp_path):
    with pytest.raises(OSError, match="does not exist"):
        load_session(tmp_path)
