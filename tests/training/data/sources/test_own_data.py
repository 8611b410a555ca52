"""Your own images and German captions, from a spoilt folder to a run."""

import json
import unicodedata
from pathlib import Path

import sat_tf
from tests.training.data.own_images import (
    CORRUPT,
    GERMAN,
    encoded,
    photograph,
    write_csv,
    write_files,
)
from tests.training.small_runs import report_of, scenes_encoder
from training.train import main

BROKEN, MISSING = "Bilder 1/kaputt.jpg", "Bilder 1/fehlt.jpg"
SPLITS = ["train"] * 7 + ["dev"] * 3


# In sub-folders, with blanks and umlauts; the sixth is corrupt, the seventh missing.
NAMES = [f"Bilder {n % 2}/Tür {n}.{'png' if n % 3 else 'jpg'}" for n in range(len(SPLITS) - 2)]
NAMES[5:5] = [BROKEN, MISSING]


def write_german(folder: Path) -> None:
    """Images, and a CSV with three captions for each."""
    files = {BROKEN: CORRUPT, MISSING: None}
    for n, name in enumerate(NAMES):
        kind = "PNG" if name.endswith("png") else "JPEG"
        files.setdefault(name, encoded(photograph(n, grey=n == 0), kind))
    # Stored decomposed, as some systems do; the caption file writes umlauts composed.
    write_files(folder, {unicodedata.normalize("NFD", name): files[name] for name in NAMES})
    rows = [(n, c, split) for n, split in zip(NAMES, SPLITS, strict=True) for c in GERMAN[:3]]
    write_csv(folder, rows, "image,caption,split")


def test_a_folder_trains_evaluates_and_captions(tmp_path, tiny, capsys, unvalidated):
    folder, run = tmp_path / "data", tmp_path / "run"
    write_german(folder)
    places = ("--data-dir", str(folder), "--cache-dir", str(tmp_path / "cache"))
    small = (*scenes_encoder(tmp_path), "--data.min_count", "1", "--run-dir", str(run))
    assert main([*tiny, "--recipe", "folder_soft", *small, *places, "--data.language", "de"]) == 0
    said = capsys.readouterr().out

    skipped = json.loads((run / "skipped_train.json").read_text("utf-8"))
    assert set(skipped) == {BROKEN, MISSING}
    assert "2 images of the train split" in said
    assert not (run / "skipped_dev.json").exists()
    assert "5 images with 18 captions to train on, 3 dev images, " in said
    report = report_of(run / "evaluation" / "dev")
    assert report["images"] == 3 and "|tok:simple-" in report["signature"]

    captioner = sat_tf.load(run)
    assert {"großer", "läuft", "straßen"} <= set(captioner.vocabulary.words)
    assert captioner.vocabulary.written["hund"] == "Hund"
    caption = captioner.caption(folder / unicodedata.normalize("NFD", NAMES[-1]))
    assert caption.text == " ".join(caption.words)
