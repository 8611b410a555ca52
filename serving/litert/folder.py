"""Files of a LiteRT export, and the settings among them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from serving.versions import GRAPH_FILE

FORMAT = 1
"""Version of the layout: raise it when `serving.litert` can no longer read earlier folders."""

ENCODER, START, STEP = "encoder.tflite", "start.tflite", "step.tflite"
GRAPHS = (ENCODER, START, STEP)
SETTINGS, VOCABULARY, CARD = "captioner.json", "vocabulary.json", "MODEL_CARD.md"

_ADVICE = "Write one with `python -m serving.export --format litert`"


@dataclass(frozen=True)
class Settings:
    """Settings that the host needs beside the graphs.

    Attributes:
        image_size: Side of the encoder's input, pixels.
        resize: `crop` or `squash`.
        grid: `(h, w)` of the attention maps; None without attention.
        beam: K, rows of the step.
        max_length: The most words of a caption.
        length_power: p in `score = log_prob / length^p`.
        forbidden: Token ids that are never written.
        precision: `float32`, `float16` or `int8`.
        sizes: Bytes of each graph.
        consensus: Sharpness of `serving.litert.consensus`; 0, also if absent, ranks by score.
    """

    image_size: int
    resize: str
    grid: tuple[int, int] | None
    beam: int
    max_length: int
    length_power: float
    forbidden: tuple[int, ...]
    precision: str
    sizes: dict[str, int]
    consensus: float = 0.0

    def to_json(self) -> str:
        """Returns a JSON object, with `FORMAT` as its `format`."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=2) + "\n"


def read_settings(folder: Path) -> Settings:
    """Reads the settings of a folder, and checks that it is whole.

    Raises:
        ValueError: The folder is no LiteRT export, one of another format, or not whole.
    """
    if not (folder / SETTINGS).is_file():
        raise ValueError(f"{folder} is no LiteRT export: {_why_not(folder)}")
    try:
        values = json.loads((folder / SETTINGS).read_text("utf-8"))
        version = values.pop("format", None)
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{folder / SETTINGS} is damaged: {error}. {_ADVICE}.") from error
    if version != FORMAT:
        raise ValueError(
            f"{folder} is a LiteRT export of format {version}, and this version of serving.litert "
            f"reads format {FORMAT}. Export the run again, or install the version that wrote it."
        )
    names = {field.name for field in fields(Settings)}
    values = {"consensus": 0.0} | values  # folders of earlier versions have none
    if values.keys() != names:
        wrong = ", ".join(sorted(values.keys() ^ names))
        raise ValueError(f"{folder / SETTINGS} is damaged: look at {wrong}. {_ADVICE}.")
    settings = Settings(**values)
    for name in (*GRAPHS, VOCABULARY):
        path, size = folder / name, settings.sizes.get(name)
        if not path.is_file():
            raise ValueError(f"{folder} is not whole: {name} is missing. Copy or export it again.")
        if size is not None and path.stat().st_size != size:
            raise ValueError(
                f"{folder} is not whole: {name} has {path.stat().st_size} bytes, not {size}. "
                "Copy or export it again."
            )
    return settings


def _why_not(folder: Path) -> str:
    if not folder.is_dir():
        return "there is no such folder."
    if (folder / GRAPH_FILE).exists():
        return f"it is a SavedModel for TensorFlow Serving. {_ADVICE}."
    versions = sorted(path.name for path in folder.iterdir() if (path / SETTINGS).exists())
    if versions:
        return f"name one of the versions in it: {', '.join(versions)}."
    return f"{SETTINGS} is missing. {_ADVICE}."
