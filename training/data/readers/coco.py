"""COCO captions: through TensorFlow Datasets, or in the JSON files of COCO and of Karpathy.

With TensorFlow Datasets, preparation needs the network once. Afterwards, images are read by number
from array records, so that memory holds the captions but never the images. As usual, `train`
includes the rest of COCO's validation images (`restval`): 113,287 images, and 5,000 each in `dev`
and `test`.

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
from training.data.readers.records import (
    RECIPES,
    CaptionFile,
    OtherFormError,
    Record,
    captions_in,
    fail,
    finished,
    name_in,
    split_in,
)

BUILDER = "coco_captions/2014"
PARTS = {"train": ("train", "restval"), "dev": ("val",), "test": ("test",)}
REJECTED = ("is_rejected", "is_precanned")
"""Marks of annotations that are left out, as VizWiz's rules say."""

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

    They are stored in the records with the images: the first call reads all of them, which takes
    minutes for COCO, and writes a file for the next one.
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


# The JSON files.


def is_coco(content: Any) -> bool:
    """Returns whether JSON has the form of COCO's captions."""
    kinds = isinstance(content, dict) and [content.get(key) for key in ("images", "annotations")]
    return bool(kinds) and all(isinstance(kind, list) for kind in kinds)


def is_karpathy(content: Any) -> bool:
    """Returns whether JSON has the form of Karpathy's data sets."""
    images = content.get("images") if isinstance(content, dict) else None
    return isinstance(images, list) and all(
        isinstance(image, dict) and "sentences" in image for image in images[:1]
    )


def read_coco(path: Path, content: Mapping[str, Any]) -> CaptionFile:
    """Reads COCO's captions; annotations that are marked as `REJECTED` are left out."""
    captions: dict[Any, list[tuple[tuple[str, ...], int]]] = {}
    for index, image in enumerate(content["images"]):
        number = _value(path, f"images[{index}]", image, "id")
        if number in captions:
            fail(path, f"images[{index}]", f"a second image with the id {number!r}")
        captions[number] = []
    rejected = 0
    for index, annotation in enumerate(content["annotations"]):
        place = f"annotations[{index}]"
        number = _value(path, place, annotation, "image_id")
        if number not in captions:
            fail(path, place, f"no image has the id {number!r}")
        if annotation.get("bbox"):
            why = "it has a 'bbox', so its text may be of a part of the image"
            raise OtherFormError(f"{path}, {place}: {why}; for captions of images see {RECIPES}.")
        if any(annotation.get(mark) for mark in REJECTED):
            rejected += 1
            continue
        captions[number].append(
            captions_in(_value(path, place, annotation, "caption"), path, place)
        )
    records = []
    for index, image in enumerate(content["images"]):
        place = f"images[{index}]"
        key = "filename" if "filename" in image else "file_name"  # KTVIC has the former
        name = name_in(_value(path, place, image, key), path, place)
        found = captions[image["id"]]
        texts = tuple(text for of, _ in found for text in of)
        split, group = split_in(image.get("split"), path, place), image.get("group")
        group = None if group is None else str(group)
        blank = sum(missing for _, missing in found)
        records.append(Record(name, texts, place, split, group, blank, str(image["id"])))
    told = f"{path.name}: {rejected} captions marked {' or '.join(REJECTED)} are left out."
    return finished(path, records, [told] if rejected else [])


def read_karpathy(path: Path, content: Mapping[str, Any]) -> CaptionFile:
    """Reads Karpathy's splits and captions."""
    records = []
    for index, image in enumerate(content["images"]):
        place = f"images[{index}]"
        name = name_in(_value(path, place, image, "filename"), path, place)
        if folder := image.get("filepath"):
            name = f"{folder}/{name}"
        sentences = _value(path, place, image, "sentences")
        if not isinstance(sentences, list):
            fail(path, place, f"expected 'sentences', a list, got {sentences!r:.60}")
        texts, blank = [], 0
        for number, sentence in enumerate(sentences):
            where = f"{place}.sentences[{number}]"
            found, missing = captions_in(_value(path, where, sentence, "raw"), path, where)
            texts += found
            blank += missing
        number = image.get("cocoid", image.get("imgid"))
        identifier = None if number is None else str(number)
        split = split_in(image.get("split"), path, place)
        records.append(Record(name, tuple(texts), place, split, None, blank, identifier))
    return finished(path, records)


def _value(path: Path, place: str, holder: Any, key: str) -> Any:
    """Reads `holder[key]`; the error names the keys that are there."""
    if not isinstance(holder, dict):
        fail(path, place, f"expected an object with {key!r}, got {holder!r:.60}")
    if key not in holder:
        found = ", ".join(map(repr, holder))
        raise OtherFormError(
            f"{path}, {place}: expected {key!r}, found {found:.120}; see {RECIPES}."
        )
    return holder[key]
