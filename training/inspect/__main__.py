"""Inspects data before training: `python -m training.inspect --data-dir DIR`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from sat_tf.layers.encoder_names import check_encoder
from sat_tf.util.commands import check_folder, exit_status, loading, run_process
from training.run.decide import Settings, check_apart, check_data_dir, parse_settings
from training.run.resolve import settled


@dataclass(frozen=True)
class Arguments:
    """Inspect data before training; takes all configuration keys of training.train."""

    config: Settings
    """The recipe's settings."""
    data_dir: Path | None = None
    """Your copy of the data set; not needed for drawn data."""
    out: Path | None = None
    """Output folder of inspect.json and the page; runs/inspection/RECIPE by default."""


def parse(argv: list[str]) -> Arguments:
    """Parses the command line."""
    return parse_settings(Arguments, argv, "training.inspect", "Inspect data before training.")


def main(argv: list[str] | None = None) -> int:
    """Runs the command.

    Returns:
        0 if training can start on this data, 1 if not, 2 if the command is wrong, 130 if
        interrupted.
    """
    given = sys.argv[1:] if argv is None else argv
    return exit_status(lambda: run(parse(given)))


def run(arguments: Arguments) -> int:
    """Surveys the data, and prints and writes the results."""
    config, data_dir = arguments.config, arguments.data_dir
    out = arguments.out or Path("runs") / "inspection" / config.recipe
    check_apart("--out", out, data_dir)
    check_data_dir(config, data_dir)
    check_encoder(config.encoder)
    check_folder("--out", out)
    # TensorFlow takes seconds to load: wrong flags are reported first.
    with loading():
        from training.inspect.page import CONTACT_SHEET, show, write
        from training.inspect.survey import survey

    found = survey(settled(config, None, data_dir), data_dir)
    page = write(out, found, config.encoder)
    show(found.report, out)
    sheet = page.with_name(CONTACT_SHEET)
    print(f"Page: {page}{f'; a few images with their captions: {sheet}' if sheet.exists() else ''}")
    return 0 if found.report["trainable"] else 1


if __name__ == "__main__":
    run_process(main)
