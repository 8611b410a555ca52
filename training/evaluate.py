"""Evaluate a run: `python -m training.evaluate --run-dir RUN --data-dir DIR --split dev`.

Or captions from elsewhere: `--captions FILE --data.name flickr8k` in place of `--run-dir RUN`.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from sat_tf.commands import exit_status, loading
from sat_tf.config import Inference, with_search
from sat_tf.ranges import Count, Size, Weight, check_ranges
from sat_tf.vocabulary import Unit
from training.arguments import default_cache_dir, named
from training.datasets import DataName, Splits
from training.digits.config import system_of
from training.recipes import DataConfig, RunConfig, read_run_config

if TYPE_CHECKING:
    from sat_tf.runs import TrainedCaptioner
    from training.datasets import Split
    from training.evaluation import Evaluation
    from training.run_data import Places


BOUND_IMAGES = 100
"""Images whose bounds are measured unless told otherwise."""


@dataclass(frozen=True)
class GivenData:
    """The data set of the captions given; a run knows its own."""

    name: DataName | None = None
    """Which data set; needed with --captions."""
    seed: Count | None = None
    """Of drawn data sets; 0 by default."""
    limit: Size | None = None
    """Only the first examples of the split; all by default."""
    splits: Splits | None = None
    """Of flickr8k and flickr30k: official or karpathy."""
    captions: str | None = None
    """Caption file of folder; the only one there by default."""
    image_dir: str | None = None
    """Where the images of folder are; the folder itself by default."""
    tokens: Unit | None = None
    """words (by default) or characters."""
    language: str | None = None
    """Code of the captions' language; en by default."""

    def __post_init__(self) -> None:
        check_ranges(self, "data")


@dataclass(frozen=True)
class Arguments:
    """Caption a split and score the captions, or score captions from elsewhere."""

    run_dir: Path | None = None
    """The run, as `python -m training.train` left it."""
    captions: Path | None = None
    """In place of a run: a JSON list of `image_id` and `caption`, one an image of the split."""
    data: GivenData = field(default_factory=GivenData)
    """With --captions."""
    data_dir: Path | None = None
    """Your copy of the data set; drawn data needs none."""
    split: str = "dev"
    """train, dev or test."""
    beam: Size | None = None
    """Hypotheses kept; the run's own by default."""
    length_power: Weight | None = None
    """Scores are log p / length^p; the run's own by default."""
    inference: Inference | None = None
    """For hard attention; the run's own by default."""
    out: Path | None = None
    """Where the report goes; evaluation/SPLIT in RUN, or in a folder like FILE, by default."""
    cache_dir: Path | None = None
    """Feature stores; $SAT_TF_CACHE or ~/.cache/sat_tf by default."""
    bound_images: Count | None = None
    """Of hard attention: images whose bounds and NWGM gap are measured; 100 by default."""
    pictures: Count | None = None
    """Pictures on the page; 12 by default."""


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    given = sys.argv[1:] if argv is None else argv
    return exit_status(lambda: _dispatch(given))


def _dispatch(argv: list[str]) -> int:
    """A digit run has flags of its own."""
    run_dir = named("--run-dir", argv)
    if run_dir is not None and system_of(Path(run_dir)) is not None:
        with loading():
            from training.digits import evaluate as digits

        return digits.run(Path(run_dir), argv)
    return run(tyro.cli(Arguments, args=argv, prog="python -m training.evaluate"))


def run(arguments: Arguments) -> int:
    """Evaluate the run or the captions that are given."""
    check_ranges(arguments)
    check_source(arguments)
    if arguments.captions is None:
        return caption_and_evaluate(arguments)
    from training.given_captions import evaluate_captions

    chosen = {name: value for name, value in vars(arguments.data).items() if value is not None}
    places = arguments.data_dir, arguments.split, arguments.out
    evaluate_captions(arguments.captions, DataConfig(**chosen), *places)
    return 0


def check_source(arguments: Arguments) -> None:
    """Either a run or captions, and with them nothing that is about the other.

    Raises:
        ValueError: Otherwise; the message names the flag.
    """
    if (arguments.run_dir is None) == (arguments.captions is None):
        got = "neither" if arguments.run_dir is None else "both"
        raise ValueError(f"Expected either `--run-dir RUN` or `--captions FILE`, got {got}.")
    if arguments.captions is None:
        flags = {f"--data.{name}": value for name, value in vars(arguments.data).items()}
        owner = "--captions"
    else:
        names = ("beam", "length_power", "inference", "cache_dir", "bound_images", "pictures")
        flags = {f"--{name.replace('_', '-')}": getattr(arguments, name) for name in names}
        owner = "--run-dir"
        if arguments.data.name is None:
            raise ValueError("`--captions` needs the data set they are of: `--data.name`.")
    for flag, value in flags.items():
        if value is not None:
            raise ValueError(f"Received a value for `{flag}`, which goes with `{owner}` only.")


def check_attention(arguments: Arguments, config: RunConfig) -> None:
    """See that what is asked of hard attention is asked of a run that has it.

    Raises:
        ValueError: The run has another kind; the message names the flag.
    """
    if config.attention.kind == "hard":
        return
    asked = {"--inference": arguments.inference, "--bound-images": arguments.bound_images}
    for flag, value in asked.items():
        if value is not None:
            raise ValueError(
                f"Received a value for `{flag}`, which is for hard attention only: expected none, "
                f"got {value!r} for a run with {config.attention.kind} attention."
            )


def caption_and_evaluate(arguments: Arguments) -> int:
    """Load the run, evaluate, write the report."""
    with loading():
        import sat_tf.runs
        from training.run_data import Places

    captioner = sat_tf.load(arguments.run_dir)
    config = read_run_config(arguments.run_dir)
    check_attention(arguments, config)
    places = Places(
        arguments.run_dir, arguments.cache_dir or default_cache_dir(), arguments.data_dir
    )
    search = with_search(config.search, beam=arguments.beam, length_power=arguments.length_power)
    if arguments.inference:
        captioner.choose(arguments.inference)
    config = dataclasses.replace(config, search=search)
    chosen = {"pictures": arguments.pictures, "bound_images": arguments.bound_images}
    chosen = {name: value for name, value in chosen.items() if value is not None}
    evaluate_run(captioner, config, places, arguments.split, arguments.out, **chosen)
    return 0


def evaluate_run(
    captioner: TrainedCaptioner,
    config: RunConfig,
    places: Places,
    split_name: str = "dev",
    out: Path | None = None,
    pictures: int = 12,
    bound_images: int = BOUND_IMAGES,
) -> dict:
    """Evaluate a run on a split; print and write the report, the captions and the page.

    Args:
        captioner: The run's best.
        config: Its configuration; `search` is what captions are generated with.
        places: Its folders.
        split_name: `train`, `dev` or `test`.
        out: Where to write; `RUN/evaluation/SPLIT` when None.
        pictures: Pictures on the page.
        bound_images: Images, one caption each, whose bounds and NWGM gap are measured if
            attention is hard.

    Returns:
        The report.
    """
    from training.caption_results import write_captions
    from training.datasets import load_split
    from training.datasets.sources import open_source
    from training.evaluation import evaluate
    from training.pages import write_page
    from training.reports import format_scores, write_report

    split = load_split(config.data.name, split_name, places.data_dir, **config.data.options())
    encoder = captioner.model.encoder
    source = open_source(encoder, config.encoder.resize, split, places.cache_dir)
    start = time.monotonic()
    found = evaluate(captioner, split, source, config.search, language=config.data.language)
    seconds, bounds = dict(found.seconds), {}
    if config.attention.kind == "hard" and bound_images:
        begun = time.monotonic()
        bounds = measure_bounds(captioner, split, source, bound_images)
        seconds["bounds"] = time.monotonic() - begun
    seconds["evaluation"] = time.monotonic() - start
    report = make_report(captioner, config, split, source, found) | {"seconds": seconds}
    report |= {"bounds": bounds} if bounds else {}
    out = out or places.run_dir / "evaluation" / split.name
    write_report(out, report)
    write_captions(out, caption_rows(found))
    title = f"{config.recipe}: {config.data.name} {split.name}"
    write_page(out, title, page_entries(captioner, split, found, pictures))
    print(f"\n{title}, {len(found.captions)} pictures, beam {config.search.beam}")
    print(format_scores(found.scores, report["intervals"]))
    if bounds:
        print(f"Hard attention, {bounds['images']} pictures with a caption each, in nats:")
        print(format_scores({k: v for k, v in bounds.items() if isinstance(v, float)}))
    for note in report["notes"]:
        print(f"Note: {note}")
    print(f"Report, captions and pictures: {out}")
    return report


def measure_bounds(captioner, split, source, images: int) -> dict[str, int | float]:
    """Bounds and NWGM gap of the first captions of some images, and how many these are."""
    from training.bounds import SAMPLES, Bounds

    found = Bounds(captioner, split, source, images)
    return {"images": len(found), "samples": SAMPLES} | found.measure()


def make_report(captioner, config, split, source, found: Evaluation) -> dict:
    """Everything someone needs to compare these figures with others."""
    from sat_tf.config import to_dict
    from training.metrics.bootstrap import intervals
    from training.reports import caption_report

    scores = found.caption_scores
    report = caption_report(split, scores, found.scores, intervals(scores))
    report["set_aside"] = split.unusable(source.set_aside)
    report["notes"] += found.notes + average_note(captioner)
    return report | {
        "recipe": config.recipe,
        "seed": config.seed,
        "data": config.data.name,
        "search": {**to_dict(config.search), "attention": captioner.model.selection},
        "configuration": to_dict(config),
    }


def average_note(captioner: TrainedCaptioner) -> tuple[str, ...]:
    """That the weights are a mean, where they are: the configuration says nothing of it."""
    from sat_tf.runs import read_average

    shares = read_average(captioner.path) if captioner.path else {}
    if not shares:
        return ()
    parts = (f"{share:g} of {Path(run).name}" for run, share in shares.items())
    return (f"The weights are an average: {', '.join(parts)}.",)


def caption_rows(found: Evaluation) -> list[dict]:
    """What `captions.json` holds: image id, caption, score, the other hypotheses, grounding."""
    from training.caption_results import GROUNDING_KEY

    rows = []
    for image_id, caption in found.captions.items():
        row = {
            "image_id": image_id,
            "caption": caption.text,
            "score": caption.score,
            "alternatives": [{"caption": t, "score": s} for t, s in caption.alternatives],
        }
        if image_id in found.grounding:
            row[GROUNDING_KEY] = found.grounding[image_id]
        rows.append(row)
    return rows


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
