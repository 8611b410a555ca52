"""Evaluate a run: `python -m training.evaluate --run-dir RUN --data-dir DIR --split dev`.

To score captions from elsewhere, give `--captions FILE --data.name flickr8k` instead of a run.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import tyro

from sat_tf import published
from sat_tf.commands import exit_status, loading, program
from sat_tf.config import Inference, SearchFlags
from sat_tf.digits import is_digit_run
from sat_tf.errors import invalid_value
from sat_tf.fields import NonNegativeInt, PositiveInt, check_fields
from sat_tf.files import default_cache_dir
from sat_tf.run_folder import RunFolder
from sat_tf.vocabulary import Unit
from training.cli import peek_flag
from training.config import DataConfig, read_run_config
from training.data.sources import DataName, Splits
from training.outputs import check_apart, check_folder


@dataclass(frozen=True)
class GivenData:
    """Data set of the given captions; a run knows its own."""

    name: DataName | None = None
    """Name of the data set; required with --captions."""
    seed: NonNegativeInt | None = None
    """Seed of drawn data sets; 0 by default."""
    limit: PositiveInt | None = None
    """Number of examples, the first of the split; all by default."""
    splits: Splits | None = None
    """Splits of flickr8k and flickr30k: official or karpathy."""
    captions: str | None = None
    """Caption file of a folder; the only one there by default."""
    image_dir: str | None = None
    """Folder of the images; the data folder by default."""
    tokens: Unit | None = None
    """Tokens: words (by default) or characters."""
    language: str | None = None
    """Language code of the captions; en by default."""

    def __post_init__(self) -> None:
        check_fields(self, "data")


@dataclass(frozen=True)
class Arguments:
    """Caption a split and score the captions, or score captions from elsewhere."""

    run_dir: Path | None = None
    """Run folder of `python -m training.train`, or a published captioner's folder or name."""
    captions: Path | None = None
    """Instead of a run: JSON list of `image_id` and `caption`, one per image of the split."""
    data: GivenData = field(default_factory=GivenData)
    """Data set, with --captions."""
    data_dir: Path | None = None
    """Your copy of the data set; the one that the run was trained on by default."""
    split: str = "dev"
    """Split: train, dev or test."""
    search: Annotated[SearchFlags, tyro.conf.arg(name="")] = SearchFlags()
    inference: Inference | None = None
    """Choice of the location by hard attention; the run's own by default."""
    out: Path | None = None
    """Output folder; evaluation/SPLIT in RUN, or in a folder named like FILE, by default."""
    cache_dir: Path | None = None
    """Feature stores; $SAT_TF_CACHE, $XDG_CACHE_HOME/sat_tf or ~/.cache/sat_tf by default."""
    bound_images: NonNegativeInt | None = None
    """Images whose bounds and NWGM gap are measured, hard attention only; 100 by default."""
    figures: NonNegativeInt | None = None
    """Images on the page; 48 by default."""
    boxes: Path | None = None
    """Boxes of phrases: Flickr30k Entities (folder, for Flickr8k and Flickr30k), COCO's instances
    (.json), or JSON lines; see docs/maps.md."""


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    given = sys.argv[1:] if argv is None else argv
    if is_digit_run(peek_flag("--run-dir", given, "")):
        with loading():
            return import_module("training.digits.evaluate").main(given)
    return exit_status(
        lambda: run(tyro.cli(Arguments, args=given, prog=program("training.evaluate")))
    )


def run(arguments: Arguments) -> int:
    """Evaluates the run or the captions given; returns the exit status."""
    check_fields(arguments)
    check_fields(arguments.search)
    check_source(arguments)
    if arguments.captions is None:  # a wrong name is answered before TensorFlow is loaded
        published.locate(arguments.run_dir)
    if arguments.out is not None:
        check_apart("--out", arguments.out, arguments.data_dir)
        check_folder("--out", arguments.out)
    if arguments.captions is not None and not arguments.captions.is_file():
        raise FileNotFoundError(f"There is no file {arguments.captions}; check the path.")
    if arguments.captions is None:
        evaluate_captioner(arguments)
    else:
        # After the checks, and without TensorFlow: a wrong flag or file is answered at once.
        from training.evaluate.given_captions import evaluate_captions

        data = DataConfig(**_given(vars(arguments.data)))
        places = arguments.data_dir, arguments.split, arguments.out
        evaluate_captions(arguments.captions, data, *places)
    return 0


def check_source(arguments: Arguments) -> None:
    """Checks that there is either a run or captions, and no flag of the other.

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
        names = ("inference", "cache_dir", "bound_images", "figures", "boxes")
        values = vars(arguments.search) | {name: getattr(arguments, name) for name in names}
        flags = {f"--{name.replace('_', '-')}": value for name, value in values.items()}
        owner = "--run-dir"
        if arguments.data.name is None:
            raise ValueError("`--captions` needs the data set they are of: `--data.name`.")
    if arguments.boxes is not None and not arguments.boxes.exists():
        got = f"{arguments.boxes}, which does not exist"
        raise invalid_value("--boxes", "a file or folder of boxes", got)
    for flag in _given(flags):
        raise ValueError(f"Received a value for `{flag}`, which goes with `{owner}` only.")


def evaluate_captioner(arguments: Arguments) -> None:
    """Loads the run and evaluates it with the settings given."""
    with loading():
        import sat_tf.runs
        from training.evaluate.run_evaluation import evaluate_run
        from training.run_state.ownership import read_data_dir

    captioner = sat_tf.runs.load_captioner(arguments.run_dir)
    config = read_run_config(captioner.path)
    kind = config.attention.kind
    if kind != "hard" and arguments.bound_images is not None:
        expected = f"none for {kind} attention"
        raise invalid_value("--bound-images", expected, arguments.bound_images)
    if arguments.inference is not None:
        captioner.set_inference(arguments.inference)
    cache_dir = arguments.cache_dir or default_cache_dir()
    data_dir = arguments.data_dir or read_data_dir(RunFolder(captioner.path))
    if arguments.out is None:
        check_folder("--run-dir", published.output_dir(arguments.run_dir))
    else:
        check_apart("--out", arguments.out, data_dir)
    names = ("figures", "bound_images", "boxes")
    chosen = _given({name: getattr(arguments, name) for name in names})
    evaluate_run(
        captioner,
        dataclasses.replace(config, search=arguments.search.over(config.search)),
        published.output_dir(arguments.run_dir),
        cache_dir,
        data_dir,
        arguments.split,
        arguments.out,
        **chosen,
    )


def _given(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the flags that have a value."""
    return {name: value for name, value in flags.items() if value is not None}
