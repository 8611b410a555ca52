"""Export a captioner as LiteRT graphs: `python -m serving.export_litert --run-dir RUN`."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import tyro

from sat_tf.config import SearchFlags
from sat_tf.images.pillow import read_pixels
from sat_tf.inference import published
from sat_tf.inference.batch import image_files
from sat_tf.inference.run_folder import RunFolder, data_of
from sat_tf.util.commands import exit_status, loading, parse_flags, printable
from sat_tf.util.errors import invalid_value
from sat_tf.util.fields import check_fields, to_dict
from sat_tf.util.files import write_all, write_json
from serving.export_saved_model import check_repeatable
from serving.versions import CARD_FILE, write_version

if TYPE_CHECKING:
    from sat_tf.config import SearchConfig
    from sat_tf.inference.captioning import TrainedCaptioner

Precision = Literal["float32", "float16", "int8"]
_MEASURED = 128  # photographs


@dataclass(frozen=True)
class Arguments:
    """Write a captioner for LiteRT, as the next version."""

    run_dir: Path
    """Run folder of `python -m training.train`, or a published captioner's folder or name."""
    out: Path | None = None
    """Folder of the versions 1, 2, ...; RUN/litert or captioners/NAME/litert by default."""
    precision: Precision = "float32"
    """Weights of the graphs; int8 quantises activations too, as it goes."""
    photographs: Path | None = None
    """Folder of photographs like those of training: int8 takes back what rounding moves on 128 of
    them. The pretrained captioners need none."""
    search: Annotated[SearchFlags, tyro.conf.arg(name="")] = SearchFlags()
    inference: Literal["expectation", "argmax"] | None = None
    """Choice of a location by hard attention; the run's own by default."""


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    arguments = parse_flags(Arguments, argv, "serving.export_litert")
    return exit_status(lambda: run(arguments))


def run(arguments: Arguments) -> None:
    """Loads the run, exports it, prints what is inside."""
    check_fields(arguments.search)
    given, precision, run_dir = arguments.photographs, arguments.precision, arguments.run_dir
    if given is not None and precision != "int8":
        raise invalid_value("photographs", "none, or `--precision int8` with it", str(given))
    if given is not None and not given.is_dir():
        raise invalid_value("photographs", "a folder", f"{given}, which is none")
    published.locate(run_dir)  # a wrong name is answered before TensorFlow is loaded
    print(f"Loading {run_dir} and building its graphs, half a minute ...", flush=True)
    with loading():
        from sat_tf.inference.load import load_captioner
        from serving.model_card import described_precision, facts

    captioner = load_captioner(run_dir)
    if arguments.inference is not None:
        captioner.set_inference(arguments.inference)
    search = arguments.search.over(captioner.config.search)
    out = arguments.out or published.output_dir(run_dir) / "litert"
    version = export(captioner, out, search, precision, given)
    print(f"Exported {run_dir} to {version}")
    inside = facts(captioner, search, version)
    inside["precision"] = described_precision(precision, captioner.path, given is not None)
    for name, value in inside.items():
        print(f"  {name:<20} {value}")
    print(f"Graphs, options and how to call them: {version / CARD_FILE.name}")


def export(
    captioner: TrainedCaptioner,
    out: Path,
    search: SearchConfig | None = None,
    precision: Precision = "float32",
    photographs: Path | None = None,
) -> Path:
    """Writes a captioner's graphs as the next version below a folder, whole or not at all.

    Args:
        captioner: The captioner with its Keras model.
        out: The folder of the versions, made if missing.
        search: Beam, length and normalisation to build in; None takes the captioner's.
        precision: Of the weights.
        photographs: Folder of photographs that correct int8, see `graphs.write_graphs`.

    Returns:
        The version's folder, `OUT/1` the first time.

    Raises:
        ValueError: The captioner samples its locations, or a setting of the search is invalid.
        OSError: `out` cannot be written to.
    """
    from sat_tf.inference.graphs import write_graphs
    from sat_tf.inference.litert_captioner import CONFIG, limits_files
    from serving.model_card import write_litert_card

    check_repeatable(captioner)
    search, corrected = search or captioner.config.search, photographs is not None

    def write(draft: Path) -> None:
        seen = _as_seen(photographs, captioner) if corrected else None
        graphs = write_graphs(draft, captioner, search, precision, photographs=seen)
        write_json(draft / CONFIG, _portable_config(captioner, search))
        write_all(limits_files(draft, captioner.limits))
        write_litert_card(draft, captioner, search, precision, graphs, corrected)

    return write_version(out, write)


def _as_seen(folder: Path, captioner: TrainedCaptioner) -> Iterator[np.ndarray]:
    """Yields `_MEASURED` photographs of a folder as the encoder sees them; names what is skipped.

    Raises:
        ValueError: The folder has none.
    """
    files, encoder = image_files([folder]), captioner.config.encoder
    for path in files[:: max(len(files) // _MEASURED, 1)][:_MEASURED]:
        try:
            yield read_pixels(path, encoder.image_size, encoder.resize)
        except ValueError as error:
            print(printable(f"Skipped {path}: {error}"), file=sys.stderr)


def _portable_config(captioner: TrainedCaptioner, search: SearchConfig) -> dict[str, Any]:
    """Returns what `sat_tf.load` reads of a captioner's configuration, without paths."""
    values = to_dict(dataclasses.replace(captioner.config, search=search))
    values["encoder"]["weights"] = None
    data = data_of(RunFolder(captioner.path).config) if captioner.path else {}
    return values | {"data": {key: data[key] for key in ("name", "language") if key in data}}


if __name__ == "__main__":
    sys.exit(main())
