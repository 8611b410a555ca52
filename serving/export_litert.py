"""Make a captioner's LiteRT graphs: `python -m serving.export_litert --run-dir RUN`.

`training.train` makes those of a run at its end. This makes them again: of an older run, for
another search, in another precision, or as plain files of a published captioner.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import tyro

from sat_tf.config import SearchFlags
from sat_tf.inference import published
from sat_tf.inference.captioning import image_files
from sat_tf.inference.litert_captioner import copy_graphs
from sat_tf.inference.load import load
from sat_tf.util.commands import exit_status, loading, parse_flags, printable
from sat_tf.util.errors import invalid_value
from sat_tf.util.fields import check_fields

if TYPE_CHECKING:
    from sat_tf.inference.captioning import TrainedCaptioner

_MEASURED = 128  # photographs


@dataclass(frozen=True)
class Arguments:
    """Make the LiteRT graphs of a captioner, which caption without TensorFlow."""

    run_dir: Path
    """Run folder of `python -m training.train`, or a published captioner's folder or name."""
    out: Path | None = None
    """Folder of the graphs; RUN/graphs or captioners/NAME/graphs by default."""
    precision: Literal["float32", "float16", "int8"] | None = None
    """Weights of the graphs; int8 quantises activations too. By default int8 with
    `--photographs`, else float32; a published captioner's own."""
    photographs: Path | None = None
    """Folder of training photographs: int8 takes back what rounding moves on 128 of them."""
    search: Annotated[SearchFlags, tyro.conf.arg(name="")] = SearchFlags()
    inference: Literal["expectation", "argmax"] | None = None
    """Choice of a location by hard attention; the run's own by default."""


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    arguments = parse_flags(Arguments, argv, "serving.export_litert")
    return exit_status(lambda: run(arguments))


def run(arguments: Arguments) -> None:
    """Makes the graphs, prints where they are."""
    check_fields(arguments.search)
    given, precision, run_dir = arguments.photographs, arguments.precision, arguments.run_dir
    if given is not None and precision not in (None, "int8"):
        raise invalid_value("photographs", "none, or int8 with it", str(given))
    if given is not None and not given.is_dir():
        raise invalid_value("photographs", "a folder", f"{given}, which is none")
    path = published.locate(run_dir)
    out = arguments.out or published.output_dir(run_dir) / "graphs"
    if out.exists() and any(out.iterdir()) and not published.is_graphs(out):
        raise invalid_value("out", "a new folder, or one of graphs", f"{out}, which has others")
    as_it_is = (precision, given, arguments.inference, arguments.search) == (
        *(None, None, None),
        SearchFlags(),
    )
    if as_it_is and published.manifest_of(path) is not None:
        copy_graphs(load(path, "litert"), out)
    else:
        print(f"Loading {run_dir} and making its graphs, half a minute ...", flush=True)
        with loading():
            from sat_tf.inference.graphs import write_graphs
            from sat_tf.inference.load import load_captioner

        captioner = load_captioner(path)
        if arguments.inference is not None:
            captioner.set_inference(arguments.inference)
        precision = precision or ("float32" if given is None else "int8")
        photographs = None if given is None else _as_seen(given, captioner)
        search = arguments.search.over(captioner.config.search)
        write_graphs(out, captioner, precision, photographs, search)
    marker = published.read_marker(out)
    size = sum(file.stat().st_size for file in out.iterdir()) / 1e6
    print(f"{out}: {marker.precision}, {size:.1f} MB. `sat_tf.load({str(out)!r})` captions.")


def _as_seen(folder: Path, captioner: TrainedCaptioner) -> Iterator[np.ndarray]:
    """Yields 128 photographs of a folder as the encoder sees them; names skipped files."""
    files = image_files([folder])
    for path in files[:: max(len(files) // _MEASURED, 1)][:_MEASURED]:
        try:
            yield captioner.pixels(path)
        except ValueError as error:
            print(printable(f"Skipped {path}: {error}"), file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
