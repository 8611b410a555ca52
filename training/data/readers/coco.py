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
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sat_tf.util.files import write_atomically
from training.data.config import DataSet
from training.data.examples import DataError, Example, Split, StoredImage
from training.data.readers.records import (
    RECIPES,
    CaptionFile,
    OtherFormError,
    Record,
    are_splits,
    captions_in,
    fail,
    finished,
    name_in,
    refuse_kinds,
    shown_names,
)

BUILDER = "coco_captions/2014"
PARTS = {"train": ("train", "restval"), "dev": ("val",), "test": ("test",)}
REJECTED = ("is_rejected", "is_precanned")
"""Marks of annotations that are left out, as VizWiz's rules say."""

_PARTIAL = ("bbox", "segmentation", "region_id")  # of annotations of a part of an image
_KNOWN = {"id", "image_id", "caption", "file_name", "filename", "split", "group", "license"}
_KNOWN |= {"width", "height", "coco_url", "flickr_url", "date_captured", "area", "iscrowd", "url"}
_KNOWN |= {"filepath", "sentences", "imgid", "cocoid", "sentids", "sentid", "raw", "tokens"}
_KNOWN |= {"category_id", "text_detected", "vizwiz_url", *REJECTED, *_PARTIAL}


def read(data_dir: Path | None, data: DataSet) -> tuple[tuple[Path, ...], Callable[[str], Split]]:
    """Returns no files, and a function that loads a split by name."""
    return (), functools.partial(load, data_dir=data_dir, limit=data.limit)


def load(split: str, data_dir: Path | None = None, limit: int | None = None) -> Split:
    """Loads one split; downloads and prepares the data set first if necessary.

    `data_dir` is the folder of TensorFlow Datasets; None for its default (`$TFDS_DATA_DIR` or
    `~/tensorflow_datasets`).

    Returns:
        The split in the order of the prepared records. Ids are COCO's file names.

    Raises:
        DataError: The data set cannot be prepared, or was prepared in a format that cannot be
            read by number.
    """
    import tensorflow_datasets as tfds

    builder = tfds.builder(BUILDER, data_dir=data_dir)
    try:
        builder.download_and_prepare(file_format="array_record")
    except (tfds.download.DownloadError, ImportError, OSError) as error:
        raise DataError(
            f"COCO captions cannot be prepared in {builder.data_dir}: {error}. Preparing needs "
            "the network and about 100 GB; `--data-dir` names another folder."
        ) from error
    examples: list[Example] = []
    for part in PARTS[split]:
        try:
            decoders = {"image": tfds.decode.SkipDecoding()}
            records = builder.as_data_source(part, decoders=decoders)
        except NotImplementedError as error:
            raise DataError(
                f"{builder.data_path} has COCO captions in a format that cannot be read by number. "
                "Choose another folder with `--data-dir`, or convert this one: `tfds "
                "convert_format --out_file_format=array_record "
                f"--dataset_version_dir={builder.data_path}`."
            ) from error
        stamp = f"{builder.info.full_name}/{part}"
        kept = Path(builder.data_path) / f"captions-{part}.json"
        for index, (name, captions) in enumerate(_captions(kept, records)):
            image = StoredImage(records, index, f"{stamp}/{name}")
            examples.append(Example(name, image, tuple(captions)))
    return Split(split, tuple(examples[:limit]))


def _captions(kept: Path, records: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """File name and captions of every record.

    They are stored in the records with the images: the first call reads all of them, which takes
    minutes for COCO, and writes a file for the next one.
    """
    with contextlib.suppress(OSError, ValueError):
        known = json.loads(kept.read_text("utf-8"))
        if len(known) == len(records):
            return known
    found = [
        (record["image/filename"].decode(), [text.decode() for text in record["captions"]["text"]])
        for record in records
    ]
    with contextlib.suppress(OSError):  # a folder shared by many may be read-only
        write_atomically(kept, json.dumps(found, ensure_ascii=False))
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
    captions: dict[Any, list[str]] = {}
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
        if part := next((key for key in _PARTIAL if annotation.get(key)), None):
            why = f"it has a {part!r}, so its text may be of a part of the image"
            raise OtherFormError(f"{path}, {place}: {why}; for captions of images see {RECIPES}.")
        if any(annotation.get(mark) for mark in REJECTED):
            rejected += 1
            continue
        captions[number] += captions_in(_value(path, place, annotation, "caption"), path, place)
    records = []
    for index, image in enumerate(content["images"]):
        place, number = f"images[{index}]", image["id"]
        key = "filename" if "filename" in image else "file_name"  # KTVIC has the former
        name = name_in(_value(path, place, image, key), path, place)
        records.append(_record(place, name, captions[number], image, number))
    _refuse_twice(path, records)
    told = f"{rejected} captions marked {' or '.join(REJECTED)} are left out."
    notes, unclear = _others(path, content["images"], content["annotations"])
    return finished(path, records, notes + [told] * bool(rejected), unclear)


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
        texts = []
        for number, sentence in enumerate(sentences):
            where = f"{place}.sentences[{number}]"
            texts += captions_in(_value(path, where, sentence, "raw"), path, where)
        number = image.get("cocoid", image.get("imgid"))
        records.append(_record(place, name, texts, image, number))
    _refuse_twice(path, records)
    return finished(path, records, *_others(path, content["images"]))


def _record(
    place: str, name: str, texts: Sequence[str], image: Mapping[str, Any], number: Any
) -> Record:
    group, number = (None if one is None else str(one) for one in (image.get("group"), number))
    return Record(name, tuple(texts), place, image.get("split"), group, number)


def _refuse_twice(path: Path, records: Sequence[Record]) -> None:
    first: dict[str, str] = {}
    for record in records:
        if (place := first.setdefault(record.image, record.place)) != record.place:
            way = "write the folders of both in their names"
            fail(path, record.place, f"the name {record.image!r} is that of {place}, too; {way}")


def _others(path: Path, *lists: Sequence[Mapping[str, Any]]) -> tuple[list[str], str]:
    """Returns a note on keys that are not read, and a question if one may name the splits."""
    others = {key: None for entries in lists for one in entries for key in one if key not in _KNOWN}
    for key in others:
        refuse_kinds(path, key, (one.get(key) for entries in lists for one in entries))
    splits = [key for key in others if are_splits(image.get(key) for image in lists[0])]
    notes = [f"keys that are not read: {shown_names([*others])}."] if others else []
    asked = f"does the key {splits[0]} hold the splits? If so, call it split" if splits else ""
    return notes, asked


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
