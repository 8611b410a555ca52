"""The snippet of docs/serving.md calls a server as it says."""

import re
from pathlib import Path

import numpy as np

PAGE = Path(__file__).resolve().parents[2] / "docs" / "serving.md"


def test_the_snippet_prints_a_caption_and_has_its_maps(
    exports, images, caller_of_soft, tmp_path, capsys
):
    (snippet,) = re.findall(r"<!-- grpc -->\s*```python\n(.*?)```", PAGE.read_text("utf-8"), re.S)
    (tmp_path / "photo.jpg").write_bytes(images.good["jpeg"])
    names: dict = {}
    for written, meant in (
        ("localhost:8500", caller_of_soft.server.address),
        ("photo.jpg", str(tmp_path / "photo.jpg")),
    ):
        assert written in snippet
        snippet = snippet.replace(written, meant)
    exec(compile(snippet, str(PAGE), "exec"), names)
    caption = exports["soft"].captioner.caption(images.good["jpeg"])
    assert capsys.readouterr().out.strip() == caption.text
    length = len(caption.words)
    np.testing.assert_allclose(names["maps"][:length], caption.alpha, atol=1e-4)
    assert not names["maps"][length:].any()
