"""Export a run for TF Serving, LiteRT or a browser: `python -m serving.export --run-dir RUN`."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import tyro

from digits import hand_over
from sat_tf.config import SearchFlags
from sat_tf.images.pillow import read_pixels
from sat_tf.inference import published
from sat_tf.inference.batch import image_files
from sat_tf.inference.run_folder import RunFolder, data_of
from sat_tf.util.commands import exit_status, loading, parse_flags, printable
from sat_tf.util.errors import invalid_value
from sat_tf.util.fields import check_fields, to_dict
from sat_tf.util.files import write_all, write_json
from serving.versions import CARD_FILE, write_version

if TYPE_CHECKING:
    from sat_tf.config import SearchConfig
    from sat_tf.inference.captioning import TrainedCaptioner


Format = Literal["saved_model", "litert", "web"]
Precision = Literal["float32", "float16", "int8"]
_MEASURED = 128  # photographs


@dataclass(frozen=True)
class Arguments:
    """Write a run for TF Serving or LiteRT, as the next version; or several as a page."""

    run_dir: tuple[Path, ...]
    """Run folder of `python -m training.train`, or a published captioner's folder or name; several
    with `--format web`, which shows them side by side."""
    out: Path | None = None
    """Folder of the versions 1, 2, ..., of `web` the page's; RUN/export, or captioners/NAME/export,
    by default; `litert` or `web` in place of `export` for these formats."""
    format: Format = "saved_model"
    """saved_model for TF Serving; litert for phones and small computers, without TensorFlow; web
    for a page on any static host, whose captioners run in the browser."""
    litert_precision: Precision = "float32"
    """Weights of a LiteRT or web export; int8 quantises activations too, as it goes."""
    photographs: Path | None = None
    """Folder of photographs like those it learned from: int8 for LiteRT takes back what rounding
    moves on 128 of them. The captioners that ship need none."""
    runtime: Path | None = None
    """Archive of @litertjs/core for `--format web`; by default npm downloads it."""
    search: Annotated[SearchFlags, tyro.conf.arg(name="")] = SearchFlags()
    inference: Literal["expectation", "argmax"] | None = None
    """Choice of a location by hard attention; the run's own by default."""


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    arguments = parse_flags(Arguments, argv, "serving.export")
    if arguments.format == "web":
        return exit_status(lambda: run_web(arguments))
    if len(arguments.run_dir) == 1 and hand_over.takes(arguments.run_dir[0]):
        given = {k: v for k, v in vars(arguments).items() if v != getattr(Arguments, k, None)}
        given |= {"run_dir": arguments.run_dir[0]}
        return exit_status(lambda: hand_over.export(**{"out": None} | given))
    return exit_status(lambda: run(arguments))


def _check(arguments: Arguments) -> None:
    """Checks what can be told without the captioners."""
    check_fields(arguments.search)
    folder = arguments.photographs
    if folder is not None and (arguments.format, arguments.litert_precision) != ("litert", "int8"):
        expected = "none, or `--format litert --litert-precision int8` with it"
        raise invalid_value("photographs", expected, str(folder))
    if folder is not None and not folder.is_dir():
        raise invalid_value("photographs", "a folder", f"{folder}, which is none")


def run_web(arguments: Arguments) -> None:
    """Writes the page, prints where it is."""
    _check(arguments)
    runs = [published.locate(run) for run in arguments.run_dir]
    if not runs:
        raise invalid_value("run_dir", "at least one captioner", "none")
    for name in ("search", "inference", "litert_precision"):
        value = getattr(arguments, name)
        if value != getattr(Arguments, name) and all(map(hand_over.takes, runs)):
            raise invalid_value(name, "no value for digit models", value)
    from serving.web.site import write_site

    out = arguments.out or published.output_dir(arguments.run_dir[0]) / "web"
    print("Building the graphs of each captioner, a minute each ...", flush=True)
    precision, inference = arguments.litert_precision, arguments.inference
    write_site(out, arguments.run_dir, arguments.runtime, arguments.search, precision, inference)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    print(f"Wrote {out}, {size / 1e6:.1f} MB. Put it on any static host; to try it here:")
    print(f"  python -m http.server --bind 127.0.0.1 --directory {out}")


def run(arguments: Arguments) -> None:
    """Loads the run, exports it, prints what was baked in."""
    _check(arguments)
    if arguments.format != "litert" and arguments.litert_precision != "float32":
        expected = "float32, or `--format litert` or `--format web` with it"
        raise invalid_value("litert_precision", expected, arguments.litert_precision)
    if len(arguments.run_dir) != 1:
        expected = "one captioner, or `--format web` with several"
        raise invalid_value("run_dir", expected, " ".join(map(str, arguments.run_dir)) or "none")
    (run_dir,) = arguments.run_dir
    published.locate(run_dir)  # a wrong name is answered before TensorFlow is loaded
    print(f"Loading {run_dir} and building its graph, half a minute ...", flush=True)
    with loading():
        from sat_tf.inference.load import load_captioner
        from serving.model_card import described_precision, facts

    folder = "litert" if arguments.format == "litert" else "export"
    out = arguments.out or published.output_dir(run_dir) / folder
    captioner = load_captioner(run_dir)
    if arguments.inference is not None:
        captioner.set_inference(arguments.inference)
    search = arguments.search.over(captioner.config.search)
    precision, given = arguments.litert_precision, arguments.photographs
    version = export(captioner, out, search, arguments.format, precision, given)
    print(f"Exported {run_dir} to {version}")
    inside = facts(captioner, search, version)
    if arguments.format == "litert":
        inside["precision"] = described_precision(precision, captioner.path, given is not None)
    for name, value in inside.items():
        print(f"  {name:<20} {value}")
    (card,) = version.rglob(CARD_FILE.name)
    print(f"Signatures, options and how to call it: {card}")


def export(
    captioner: TrainedCaptioner,
    out: Path,
    search: SearchConfig | None = None,
    format: Format = "saved_model",
    litert_precision: Precision = "float32",
    photographs: Path | None = None,
) -> Path:
    """Writes a captioner as the next version below a folder, whole or not at all.

    Args:
        captioner: The captioner, as `sat_tf.load` gives it.
        out: The folder of the versions, made if missing.
        search: Beam, length and normalisation baked in; None takes the captioner's.
        format: `saved_model` or `litert`.
        litert_precision: Of the weights of a LiteRT export.
        photographs: Folder of photographs that correct int8, see `graphs.write_graphs`.

    Returns:
        The version's folder, `OUT/1` the first time.

    Raises:
        ValueError: The captioner samples its locations, or a setting of the search is invalid.
        OSError: `out` cannot be written to.
    """
    if captioner.model.selection == "sample":
        raise ValueError(
            "Received an invalid value for argument `inference`: expected expectation or argmax, "
            "got sample: what is served has to answer the same each time."
        )
    search = search or captioner.config.search
    if format == "litert":
        from sat_tf.inference.graphs import write_graphs
        from sat_tf.inference.litert_captioner import CONFIG, limits_files
        from serving.model_card import write_litert_card

        def write_litert(draft: Path) -> None:
            seen = None if photographs is None else _as_seen(photographs, captioner)
            graphs = write_graphs(draft, captioner, search, litert_precision, photographs=seen)
            write_json(draft / CONFIG, _portable_config(captioner, search))
            write_all(limits_files(draft, captioner.limits))
            corrected = photographs is not None
            write_litert_card(draft, captioner, search, litert_precision, graphs, corrected)

        return write_version(out, write_litert)
    from serving.model_card import write_card
    from serving.saved_model import save_signatures, write_warmup
    from serving.signatures import make_signatures

    def write(draft: Path) -> None:
        signatures = make_signatures(captioner, search)
        functions = save_signatures(signatures, draft)
        write_warmup(draft, signatures, captioner.config.encoder.image_size)
        write_card(draft, captioner, search, functions)

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
