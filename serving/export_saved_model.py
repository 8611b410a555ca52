"""Export a captioner for TF Serving: `python -m serving.export_saved_model --run-dir RUN`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from sat_tf.config import SearchFlags
from sat_tf.inference import published
from sat_tf.inference.load import load_captioner
from sat_tf.util.commands import exit_status, loading, parse_flags
from sat_tf.util.errors import invalid_value
from sat_tf.util.fields import check_fields
from serving.versions import CARD_FILE, write_version

if TYPE_CHECKING:
    from sat_tf.config import SearchConfig
    from sat_tf.inference.captioning import TrainedCaptioner


@dataclass(frozen=True)
class Arguments:
    """Write a captioner for TF Serving, as the next version."""

    run_dir: Path
    """Run folder of `python -m training.train`, or a published captioner's folder or name."""
    out: Path | None = None
    """Folder of the versions 1, 2, ...; RUN/export or captioners/NAME/export by default."""
    search: Annotated[SearchFlags, tyro.conf.arg(name="")] = SearchFlags()
    inference: Literal["expectation", "argmax"] | None = None
    """Choice of a location by hard attention; the run's own by default."""


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    arguments = parse_flags(Arguments, argv, "serving.export_saved_model")
    return exit_status(lambda: run(arguments))


def run(arguments: Arguments) -> None:
    """Loads the run, exports it, prints the contents."""
    check_fields(arguments.search)
    run_dir = arguments.run_dir
    print(f"Loading {run_dir} and building its graph, half a minute ...", flush=True)
    with loading():
        captioner = load_captioner(run_dir)
    if arguments.inference is not None:
        captioner.set_inference(arguments.inference)
    out = arguments.out or published.output_dir(run_dir) / "export"
    version = export(captioner, out, arguments.search.over(captioner.config.search))
    print(f"Exported {run_dir} to {version}")
    print(f"Signatures, options and how to call it: {version / CARD_FILE}")


def export(captioner: TrainedCaptioner, out: Path, search: SearchConfig | None = None) -> Path:
    """Writes a captioner as the next version below a folder, whole or not at all.

    Args:
        captioner: The captioner with its Keras model.
        out: The folder of the versions, made if missing.
        search: Beam, length and normalisation to build in; None takes the captioner's.

    Returns:
        The version's folder, `OUT/1` the first time.

    Raises:
        ValueError: The captioner samples its locations, or a setting of the search is invalid.
        OSError: `out` cannot be written to.
    """
    from serving.model_card import write_card
    from serving.signatures import make_signatures, save_signatures, write_warmup

    if captioner.config.attention.selection == "sample":
        expected = "expectation or argmax, which answer the same each time"
        raise invalid_value("inference", expected, "sample")
    search = search or captioner.config.search

    def write(draft: Path) -> None:
        signatures = make_signatures(captioner, search)
        functions = save_signatures(signatures, draft)
        write_warmup(draft, signatures, captioner.config.encoder.image_size)
        write_card(draft, captioner, search, functions)

    return write_version(out, write)


if __name__ == "__main__":
    sys.exit(main())
