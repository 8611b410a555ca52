"""Comparison of digit systems on the same examples."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sat_tf.config import SYSTEM_KEY
from training.config import read_saved
from training.data.digits.config import DigitData
from training.evaluate.reports import REPORT_FILE
from training.tables import text_table
from training.tasks.comparison import LABELS, means_over_seeds, read_report, score_table
from training.tasks.digits.config import SYSTEMS


def compare(
    folders: Sequence[Path], split: str, data_dir: Path | None, samples: int, seeds: int
) -> list[str]:
    """Compares evaluations of digit systems by their reports alone; see `Task.compare`.

    Raises:
        ValueError: They were scored on different examples.
    """
    reports = [read_report(folder / REPORT_FILE, split) for folder in folders]
    first, *others = reports
    for folder, report in zip(folders, reports, strict=True):
        if _examples(report) != _examples(first):
            raise ValueError(
                f"{folder} was scored on other examples than {folders[0]}: compare systems with "
                "the same digits and the same `--data` settings."
            )
    names = [name for name in first["scores"] if all(name in r["scores"] for r in others)]
    scores = {name: means_over_seeds([r["scores"][name] for r in reports], seeds) for name in names}
    heads = [f"{label} - {LABELS[0]}" for label in LABELS[1 : len(reports) // seeds]]
    rows = [
        [name, *(f"{v - values[0]:+.2f}" for v in values[1:])] for name, values in scores.items()
    ]
    return [
        f"{split}, {first['examples']} examples",
        "",
        score_table(scores),
        "",
        text_table([["", *heads], *rows]),
        "",
        "Note: there are no intervals, as these reports hold means over the split and not the "
        "outcome of each example.",
    ]


def _examples(report: dict[str, Any]) -> tuple[str, DigitData]:
    """Returns what determines the scored examples: the digits and the settings drawn with."""
    kind = SYSTEMS[report[SYSTEM_KEY]]
    data = read_saved(kind, report["configuration"]).data.scored()
    same = dataclasses.replace(data, dev_digits=DigitData.dev_digits, limit=None, examples=None)
    return report["digits_fingerprint"], same
