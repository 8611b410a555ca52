"""The comparison of LiteRT with the SavedModel counts equal captions, bytes and images."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import litert
from training.data.examples import Example

TEXTS = ("a red dog", "a blue cat")


def test_it_counts_equal_captions_and_bytes(tmp_path, monkeypatch):
    folders = {name: tmp_path / name for name in ("SavedModel", "int8")}
    for number, folder in enumerate(folders.values(), 1):
        folder.mkdir()
        (folder / "file").write_bytes(bytes(number * 10**6))
    captioners = {
        "SavedModel": lambda content: (TEXTS[sum(content) % 2], -1.0),
        "int8": lambda content: (TEXTS[0], -1.5),
    }
    examples = [Example(str(n), np.full([4, 4, 3], n, np.uint8), TEXTS) for n in range(6)]
    texts = [captioners["SavedModel"](content)[0] for content in map(litert.content_of, examples)]
    monkeypatch.setattr(litert, "start_seconds", lambda *_: 0.25)
    exported, converted = litert.compare(captioners, folders, examples)
    assert exported["equal"] == 1.0 and exported["mb"] == 1.0 and "start_s" not in exported
    assert converted["equal"] == texts.count(TEXTS[0]) / 6 and converted["mb"] == 2.0
    assert converted["score"] == (pytest.approx(0.5) if TEXTS[0] in texts else 0.0)
    assert converted["start_s"] == 0.25 and converted["images_s"] > 0
