"""Evaluate a run: `python -m training.evaluate --run-dir RUN --data-dir DIR --split dev`."""

from __future__ import annotations

import dataclasses
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from sat_tf.config import Inference
from training.recipes import RunConfig, read_run_config, with_search

if TYPE_CHECKING:
    from sat_tf.runs import TrainedCaptioner
    from training.datasets import Split
    from training.evaluation import Evaluation
    from training.fit import Places


@dataclass(frozen=True)
class Arguments:
    """Caption a split and score the captions."""

    run_dir: Path
    """The run, as `python -m training.train` left it."""
    data_dir: Path | None = None
    """Your copy of the data set; drawn data needs none."""
    split: str = "dev"
    """train, dev or test."""
    beam: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """Hypotheses kept; the run's own by default."""
    length_power: float | None = None
    """Scores are log p / length^p; the run's own by default."""
    inference: Inference | None = None
    """For hard attention; the run's own by default."""
    out: Path | None = None
    """Where the report goes; RUN/evaluation/SPLIT by default."""
    cache_dir: Path | None = None
    """Feature stores; $SAT_TF_CACHE or ~/.cache/sat_tf by default."""
    pictures: int = 12
    """Pictures on the page."""


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    arguments = tyro.cli(Arguments, args=argv, prog="python -m training.evaluate")
    try:
        return run(arguments)
    except (ValueError, OSError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2


def run(arguments: Arguments) -> int:
    """Load the run, evaluate, write the report."""
    from sat_tf import runs
    from training.fit import Places
    from training.train import default_cache_dir

    captioner = runs.load(arguments.run_dir)
    config = read_run_config(arguments.run_dir)
    places = Places(
        arguments.run_dir, arguments.cache_dir or default_cache_dir(), arguments.data_dir
    )
    search = with_search(config.search, beam=arguments.beam, length_power=arguments.length_power)
    if arguments.inference:
        captioner.choose(arguments.inference)
    config = dataclasses.replace(config, search=search)
    evaluate_run(captioner, config, places, arguments.split, arguments.out, arguments.pictures)
    return 0


def evaluate_run(
    captioner: TrainedCaptioner,
    config: RunConfig,
    places: Places,
    split_name: str = "dev",
    out: Path | None = None,
    pictures: int = 12,
) -> dict:
    """Evaluate a run on a split; print and write the report, the captions and the page.

    Args:
        captioner: The run's best.
        config: Its configuration; `search` is what captions are generated with.
        places: Its folders.
        split_name: `train`, `dev` or `test`.
        out: Where to write; `RUN/evaluation/SPLIT` when None.
        pictures: Pictures on the page.

    Returns:
        The report.
    """
    from training.captions_file import write_captions
    from training.datasets import load_split
    from training.datasets.sources import open_source
    from training.evaluation import evaluate
    from training.metrics.bootstrap import bootstrap
    from training.pages import write_page
    from training.reports import format_scores, write_report

    split = load_split(
        config.data.name,
        split_name,
        places.data_dir,
        seed=config.data.seed,
        limit=config.data.limit,
    )
    encoder = captioner.model.encoder
    source = open_source(encoder, config.encoder.resize, split, places.cache_dir)
    start = time.monotonic()
    found = evaluate(captioner, split, source, config.search)
    seconds = {**found.seconds, "evaluation": time.monotonic() - start}
    intervals = {
        name: bootstrap(found.caption_scores, name)
        for name in ("bleu_4", "meteor", "cider")
        if name in found.scores
    }
    report = make_report(captioner, config, split, source, found, seconds, intervals)
    out = out or places.run_dir / "evaluation" / split.name
    write_report(out, report)
    write_captions(out, caption_rows(found))
    title = f"{config.recipe}: {config.data.name} {split.name}"
    write_page(out, title, page_entries(captioner, split, found, pictures))
    print(f"\n{title}, {len(found.captions)} pictures, beam {config.search.beam}")
    print(format_scores(found.scores, intervals))
    for note in report["notes"]:
        print(f"Note: {note}")
    print(f"Report, captions and pictures: {out}")
    return report


def make_report(captioner, config, split, source, found: Evaluation, seconds, intervals) -> dict:
    """Everything someone needs to compare these figures with others."""
    from sat_tf.config import to_dict
    from training.reports import package_versions

    model = captioner.model
    reasons = dict(split.set_aside)
    reasons |= {split.examples[i].image_id: why for i, why in source.set_aside.items()}
    return {
        "recipe": config.recipe,
        "seed": config.seed,
        "data": config.data.name,
        "split": split.name,
        "split_fingerprint": split.fingerprint(),
        "images": len(found.captions),
        "set_aside": reasons,
        "tokeniser": found.caption_scores.tokeniser,
        "search": {**to_dict(config.search), "attention": model.selection},
        "scores": found.scores,
        "intervals": intervals,
        "metric_versions": found.caption_scores.versions,
        "seconds": seconds,
        "versions": package_versions(),
        "notes": list(found.caption_scores.notes),
        "configuration": to_dict(config),
    }


def caption_rows(found: Evaluation) -> list[dict]:
    """What `captions.json` holds: image id, caption, score, and the other hypotheses."""
    return [
        {
            "image_id": image_id,
            "caption": caption.text,
            "score": caption.score,
            "alternatives": [{"caption": t, "score": s} for t, s in caption.alternatives],
        }
        for image_id, caption in found.captions.items()
    ]


def page_entries(captioner: TrainedCaptioner, split: Split, found: Evaluation, count: int):
    """The first pictures of the split with their attention, one at a time."""
    from training.drawing import picture_of
    from training.pages import PageEntry

    shown = [example for example in split.examples if example.image_id in found.captions]
    for example in shown[:count]:
        caption = found.captions[example.image_id]
        yield PageEntry(
            example.image_id,
            caption.text,
            tuple(example.captions),
            picture_of(captioner, example.image, caption),
            caption.score,
        )


if __name__ == "__main__":
    sys.exit(main())
