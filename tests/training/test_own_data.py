"""One's own pictures, from a spoilt folder to a run: German words, Chinese characters."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import sat_tf
from sat_tf.layers.encoder import Encoder
from training.train import main

GERMAN = [
    "Ein großer Hund läuft, schnell",
    'Die Tür ist "offen"\nund rot',
    "Über\tden Straßen 🐕",
    "Ein Hund, ein Hund",
]
CHINESE = ["一只大狗在跑。", "红色的门开着", "街上有一只狗🐕", "狗和狗"]
CORRUPT, MISSING = "Bilder 1/kaputt.jpg", "Bilder 1/fehlt.jpg"
SPLITS = ["train"] * 7 + ["dev"] * 3


def names() -> list[str]:
    """In sub-folders, with blanks and umlauts; grey, PNG, corrupt and missing ones among them."""
    plain = [f"Bilder {n % 2}/Tür {n}.{'png' if n % 3 else 'jpg'}" for n in range(8)]
    return [*plain[:5], CORRUPT, MISSING, *plain[5:]]


def write_pictures(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for n, name in enumerate(names()):
        # Stored decomposed, as some systems do; the caption files write umlauts composed.
        path = folder / unicodedata.normalize("NFD", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        shape = (60, 80) if n == 0 else (60, 80, 3)
        if name == CORRUPT:
            path.write_bytes(b"\xff\xd8\xff no picture")
        elif name != MISSING:
            Image.fromarray(rng.integers(0, 256, shape, np.uint8)).save(path)


def write_csv(folder: Path) -> None:
    rows = [
        f'{name},"{caption.replace(chr(34), chr(34) * 2)}",{split}'
        for name, split in zip(names(), SPLITS, strict=True)
        for caption in GERMAN[:3]
    ]
    text = "\ufeff" + "\r\n".join(["image,caption,split", *rows])
    (folder / "captions.csv").write_bytes(text.encode())


def write_jsonl(folder: Path) -> None:
    rows = [
        {"image": name, "captions": CHINESE, "split": split}
        for name, split in zip(names(), SPLITS, strict=True)
    ]
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    (folder / "captions.jsonl").write_text("".join(lines), "utf-8")


@pytest.mark.parametrize(
    ("write", "flags", "tokeniser", "known"),
    [
        (write_csv, ("--data.language", "de"), "simple", {"großer", "läuft", "straßen"}),
        (
            write_jsonl,
            ("--data.language", "zh", "--data.tokens", "characters"),
            "characters",
            {"狗", "门"},
        ),
    ],
    ids=["german", "chinese"],
)
def test_a_folder_trains_evaluates_and_captions(
    tmp_path, tiny, capsys, write, flags, tokeniser, known
):
    folder, run = tmp_path / "data", tmp_path / "run"
    write_pictures(folder)
    write(folder)
    weights = tmp_path / "encoder.weights.h5"
    Encoder("scenes_cnn", 64).network.save_weights(weights)
    places = ("--data-dir", str(folder), "--cache-dir", str(tmp_path / "cache"))
    small = ("--encoder.name", "scenes_cnn", "--encoder.image_size", "64")
    small += ("--encoder.weights", str(weights), "--data.min_count", "1", "--run-dir", str(run))
    assert main([*tiny, "--recipe", "folder_soft", *small, *places, *flags]) == 0
    said = capsys.readouterr().out

    set_aside = json.loads((run / "set_aside_train.json").read_text("utf-8"))
    assert set(set_aside) == {CORRUPT, MISSING} and "2 pictures of the train split" in said
    assert not (run / "set_aside_dev.json").exists()
    assert f"6 pictures with {6 * (3 if write is write_csv else 4)} captions" in said
    report = json.loads((run / "evaluation" / "dev" / "report.json").read_text("utf-8"))
    assert report["images"] == 3 and report["tokeniser"] == tokeniser
    assert "meteor" not in report["scores"]
    assert any(note.startswith("METEOR") for note in report["notes"])

    captioner = sat_tf.load(run)
    assert known <= set(captioner.vocabulary.words)
    caption = captioner.caption(folder / unicodedata.normalize("NFD", names()[-1]))
    joined = ("" if tokeniser == "characters" else " ").join(caption.words)
    assert caption.text == joined
