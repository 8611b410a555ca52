"""Your own images, from a spoilt folder to a run: German words, Chinese characters."""

import functools
import json
import unicodedata
from pathlib import Path

import pytest

import sat_tf
from tests.training.data.own_images import (
    CHINESE,
    CORRUPT,
    GERMAN,
    encoded,
    photograph,
    write_csv,
    write_files,
    write_jsonl,
)
from tests.training.small_runs import report_of, scenes_encoder
from training.train import main

slow = functools.partial(pytest.param, marks=pytest.mark.slow)
BROKEN, MISSING = "Bilder 1/kaputt.jpg", "Bilder 1/fehlt.jpg"
SPLITS = ["train"] * 7 + ["dev"] * 3


def names(count: int) -> list[str]:
    """In sub-folders, with blanks and umlauts; the sixth is corrupt, the seventh missing."""
    plain = [f"Bilder {n % 2}/Tür {n}.{'png' if n % 3 else 'jpg'}" for n in range(count - 2)]
    return [*plain[:5], BROKEN, MISSING, *plain[5:]]


def write_images(folder: Path, count: int) -> None:
    files = {BROKEN: CORRUPT, MISSING: None}
    for n, name in enumerate(names(count)):
        kind = "PNG" if name.endswith("png") else "JPEG"
        files.setdefault(name, encoded(photograph(n, grey=n % 10 == 0), kind))
    # Stored decomposed, as some systems do; the caption files write umlauts composed.
    write_files(folder, {unicodedata.normalize("NFD", name): files[name] for name in names(count)})


def write_german(folder: Path, count: int, splits: list[str] | None = None) -> None:
    """A CSV with three captions per image."""
    write_images(folder, count)
    ends = [()] * count if splits is None else [(split,) for split in splits]
    rows = [(n, c, *e) for n, e in zip(names(count), ends, strict=True) for c in GERMAN[:3]]
    write_csv(folder, rows, "image,caption,split" if splits else "image,caption")


def write_chinese(folder: Path, count: int, splits: list[str] | None = None) -> None:
    """A JSONL with four captions per image."""
    write_images(folder, count)
    rows = [{"image": name, "captions": list(CHINESE)} for name in names(count)]
    if splits:
        rows = [row | {"split": split} for row, split in zip(rows, splits, strict=True)]
    write_jsonl(folder, rows)


@pytest.mark.parametrize(
    ("write", "flags", "tokeniser", "known"),
    [
        (write_german, "de", "simple", {"großer", "läuft", "straßen"}),
        slow(write_chinese, "zh", "characters", {"狗", "门"}),
    ],
    ids=["german", "chinese"],
)
def test_a_folder_trains_evaluates_and_captions(
    tmp_path, tiny, capsys, unvalidated, write, flags, tokeniser, known
):
    folder, run = tmp_path / "data", tmp_path / "run"
    write(folder, len(SPLITS), SPLITS)
    places = ("--data-dir", str(folder), "--cache-dir", str(tmp_path / "cache"))
    small = (*scenes_encoder(tmp_path), "--data.min_count", "1", "--run-dir", str(run))
    argv = [*tiny, "--recipe", "folder_soft", *small, *places, "--data.language", *flags.split()]
    assert main(argv) == 0
    said = capsys.readouterr().out

    skipped = json.loads((run / "skipped_train.json").read_text("utf-8"))
    assert set(skipped) == {BROKEN, MISSING}
    assert "2 images of the train split" in said
    assert not (run / "skipped_dev.json").exists()
    captions = 6 * (3 if write is write_german else 4)
    assert f"5 images with {captions} captions to train on, 3 dev images, " in said
    report = report_of(run / "evaluation" / "dev")
    assert report["images"] == 3 and report["tokeniser"] == tokeniser
    assert f"|tok:{tokeniser}-" in report["signature"]

    captioner = sat_tf.load(run)
    assert known <= set(captioner.vocabulary.words)
    assert captioner.vocabulary.written.get("hund") == ("Hund" if write is write_german else None)
    caption = captioner.caption(folder / unicodedata.normalize("NFD", names(len(SPLITS))[-1]))
    joined = (" " if tokeniser == "simple" else "").join(caption.words)
    assert caption.text == joined
