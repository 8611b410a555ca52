"""COCO captions through TensorFlow Datasets, in the splits of Karpathy and Li.

Preparation needs the network once. Afterwards, images are read by number from array records, so
that memory holds the captions but never the images. As usual, `train` includes the rest of COCO's
validation images (`restval`): 113,287 images, and 5,000 each in `dev` and `test`.

References:
    Chen et al. (2015), "Microsoft COCO Captions", arXiv:1504.00325; Karpathy and Li (2015), "Deep
    Visual-Semantic Alignments for Generating Image Descriptions", arXiv:1412.2306.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sat_tf.util.files import write_atomically
from training.data.examples import DataError, Example, Split, StoredImage

BUILDER = "coco_captions/2014"
PARTS = {"train": ("train", "restval"), "dev": ("val",), "test": ("test",)}

Captions = list[tuple[str, list[str]]]


def load(split: str, data_dir: Path | None = None, limit: int | None = None) -> Split:
    """Loads one split; downloads and prepares the data set first if necessary.

    Args:
        split: "train", "dev" or "test".
        data_dir: The folder of TensorFlow Datasets; None for its default (`$TFDS_DATA_DIR` or
            `~/tensorflow_datasets`).
        limit: Load only so many examples.

    Returns:
        The split in the order of the prepared records. Ids are COCO's file names.

    Raises:
        DataError: The data set cannot be prepared, or was prepared in a format that cannot be
            read by number.
    """
    import tensorflow_datasets as tfds

    builder = _prepared(data_dir)
    examples: list[Example] = []
    for part in PARTS[split]:
        records = _records(builder, part, {"image": tfds.decode.SkipDecoding()})
        stamp = f"{builder.info.full_name}/{part}"
        for index, (name, captions) in enumerate(_captions(builder, part, records)):
            image = StoredImage(records, index, f"{stamp}/{name}")
            examples.append(Example(name, image, tuple(captions)))
    return Split(split, tuple(examples[:limit]))


def _prepared(data_dir: Path | None) -> Any:
    import tensorflow_datasets as tfds

    builder = tfds.builder(BUILDER, data_dir=data_dir)
    try:
        builder.download_and_prepare(file_format="array_record")
    except (tfds.download.DownloadError, ImportError, OSError) as error:
        raise DataError(
            f"COCO captions cannot be prepared in {builder.data_dir}: {error}. Preparing needs "
            "the network and about 100 GB; `--data-dir` names another folder."
        ) from error
    return builder


def _records(builder: Any, part: str, decoders: dict[str, Any]) -> Sequence[Mapping[str, Any]]:
    try:
        return builder.as_data_source(part, decoders=decoders)
    except NotImplementedError as error:
        raise DataError(
            f"{builder.data_path} has COCO captions in a format that cannot be read by number. "
            "Choose another folder with `--data-dir`, or convert this one: `tfds convert_format "
            f"--out_file_format=array_record --dataset_version_dir={builder.data_path}`."
        ) from error


def _captions(builder: Any, part: str, records: Sequence[Mapping[str, Any]]) -> Captions:
    """File name and captions of every record.

    They are stored in the records, beside the images: the first call reads all of them, which
    takes minutes for COCO, and writes a file for the next one.
    """
    path = Path(builder.data_path) / f"captions-{part}.json"
    with contextlib.suppress(OSError, ValueError):
        known = json.loads(path.read_text("utf-8"))
        if len(known) == len(records):
            return known
    found = [
        (record["image/filename"].decode(), [text.decode() for text in record["captions"]["text"]])
        for record in records
    ]
    with contextlib.suppress(OSError):  # a folder shared by many may be read-only
        write_atomically(path, json.dumps(found, ensure_ascii=False))
    return found
