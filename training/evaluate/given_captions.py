"""Scores of captions from elsewhere, with the references, metrics and report of a run."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from sat_tf.errors import invalid_value
from sat_tf.fields import to_dict
from sat_tf.run_folder import RunFolder
from training.config import DataConfig
from training.data.sources import load_split
from training.evaluate.caption_results import (
    CAPTIONS_FILE,
    captions_of,
    parse_captions,
    write_captions,
)
from training.evaluate.reports import (
    MARKDOWN_FILE,
    REPORT_FILE,
    caption_report,
    console_summary,
    write_report,
)
from training.evaluate.stages import timed
from training.metrics.bootstrap import intervals
from training.metrics.captions import score_captions
from training.metrics.scene_words import word_scores

_WRITTEN = (CAPTIONS_FILE, REPORT_FILE, MARKDOWN_FILE)


def evaluate_captions(
    path: Path,
    data: DataConfig,
    data_dir: Path | None = None,
    split_name: str = "dev",
    out: Path | None = None,
) -> dict[str, Any]:
    """Scores a file of captions on a split; prints the main scores, writes report and captions.

    The report has nothing that needs a model: no likelihood, attention or search.

    Args:
        path: JSON list of `image_id` and `caption`, one per image of the split.
        data: Data set: `name` and the keys that select its captions, as in training.
        data_dir: The user's copy of the data set; None for drawn ones.
        split_name: `train`, `dev` or `test`.
        out: Output folder; `evaluation/SPLIT` in a folder named like the file if None.

    Returns:
        The report.

    Raises:
        DataError: The file is invalid, or its images are not those of the split.
        ValueError: The report would replace the file, or that of a run: `out` is None and the
            folder named like the file is a run.
    """
    folder = RunFolder(path.with_suffix(""))
    if out is None and folder.config.exists():
        raise ValueError(
            f"`--captions {path}` needs a folder for the report, `--out`: {folder} is a run, whose "
            "own evaluation would be overwritten."
        )
    if out is not None and path.resolve() in [(out / name).resolve() for name in _WRITTEN]:
        expected = "a folder where the report does not replace the file of `--captions`"
        raise invalid_value("--out", expected, str(out))
    content = path.read_bytes()
    given = parse_captions(content, path)
    split = load_split(data.name, split_name, data_dir, **data.options())
    captions, seconds = captions_of(split, given, path), {}
    with timed(seconds, "caption metrics", f"Scoring {len(captions):,} captions"):
        wanted = {"language": data.language, "unit": data.tokens}
        found = score_captions(captions, split.references(), **wanted)
        scores = dict(found.scores)
        if any(example.phrases for example in split.examples):
            scores |= word_scores(captions, split)
    report = caption_report(split, found, scores, intervals(found)) | {
        "captions": {"file": path.name, "sha256": hashlib.sha256(content).hexdigest()},
        "data": data.name,
        "configuration": {"data": to_dict(data)},
        "seconds": seconds,
    }
    out = out or folder.evaluation(split.name)
    write_report(out, report)
    write_captions(out, [{"image_id": i, "caption": text} for i, text in captions.items()])
    heading = f"{path.name}: {data.name} {split.name}, {len(captions):,} images"
    print(console_summary(heading, report, captions, out))
    return report
