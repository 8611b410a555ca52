"""Settings of a data set: which it is, how it is read, and how captions become words."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Literal

from sat_tf.text.detokenize import Unit
from sat_tf.text.words import check_language, default_unit
from sat_tf.util.errors import invalid_value
from sat_tf.util.fields import NonNegativeInt, PositiveInt, Range, check_fields

DataName = Literal["scenes", "flickr8k", "flickr30k", "coco_captions", "folder"]
Splits = Literal["official", "karpathy"]
"""Authors of the splits, for a data set that has several."""

ROLES = ("image", "caption", "split", "group")


@dataclass(frozen=True)
class DataSet:
    """A data set: where its captions and images are, and how captions are split."""

    name: DataName = "scenes"
    """Name of the data set."""
    splits: Splits | None = None
    """Splits of flickr8k and flickr30k; None for official (flickr8k) or karpathy (flickr30k)."""
    captions: str | None = None
    """Caption file of the data set `folder`, relative to it, or one per split with commas between
    or `*`; None if there is only one, or one per split."""
    columns: str | None = None
    """Columns or keys of the caption file of `folder`: image=NAME,caption=NAME,split=NAME,
    group=NAME, in part or all, by name or number; None finds them by name."""
    held_out: str | None = None
    """Places in [0, 1) below which the hashes of names, or groups, of `folder` are in dev and in
    test; after them, in train, dev and test again in turn. None for those that hold out a tenth
    each. A run records them, so that added images move none."""
    image_dir: str | None = None
    """Folder of the images of the data set `folder`, relative to it; None for the folder itself."""
    tokens: Unit | None = None
    """Tokens of a caption: words, as the captions separate them, or characters; None takes
    characters in languages without spaces, such as Chinese, Japanese and Thai, else words."""
    language: str = "en"
    """Language code of the captions; it chooses the scores' tokeniser and METEOR's tables."""
    seed: NonNegativeInt = 0
    """Seed of drawn data sets."""
    limit: PositiveInt | None = None
    """Use only the first examples of each split, to try something out."""

    def __post_init__(self) -> None:
        check_fields(self, "data")
        check_language(self.language, "--data.language", "key")
        _check_columns(self.columns)
        parse_places(self.held_out)
        owners = dict.fromkeys(("captions", "columns", "held_out", "image_dir"), ("folder",))
        owners["splits"] = ("flickr8k", "flickr30k")
        for key, names in owners.items():
            value = getattr(self, key)
            if value is not None and self.name not in names:
                expected = f"None for {self.name}, as it belongs to {' and '.join(names)}"
                raise invalid_value(f"--data.{key}", expected, repr(value), "key")

    @property
    def unit(self) -> Unit:
        """Tokens of a caption: those chosen, or the language's."""
        return self.tokens or default_unit(self.language)

    @property
    def splitting(self) -> dict[str, Any]:
        """Arguments of `tokenize` and `Vocabulary` for these captions."""
        return {"unit": self.unit, "language": self.language}


@dataclass(frozen=True)
class DataConfig(DataSet):
    """The data set and how its captions become words."""

    min_count: PositiveInt = 5
    """Words seen fewer times in the training captions become <unk>."""
    vocabulary_size: PositiveInt | None = None
    """Most words kept, by frequency; None keeps all that pass min_count."""
    max_length: PositiveInt = 30
    """Training captions are cut to this many words."""
    mirror: bool = False
    """Mirror images half of the time."""
    random_crop: Annotated[float, Range(0, 0.5)] = 0.0
    """Share of an image's height and width cropped at random; needs a trained encoder."""


def _check_columns(text: str | None) -> None:
    for part in (text or "").split(",") if text is not None else ():
        role, _, name = part.partition("=")
        if role.strip() not in ROLES or not name.strip():
            expected = "ROLE=COLUMN,... with the roles image, caption, split and group"
            raise invalid_value("--data.columns", expected, repr(text), "key")


def parse_places(text: str | None) -> tuple[float, ...] | None:
    """Parses `0.1,0.2`.

    Raises:
        ValueError: It has another form.
    """
    if text is None:
        return None
    try:
        places = tuple(map(float, text.split(",")))
    except ValueError:
        places = ()
    if len(places) < 2 or not all(a <= b for a, b in pairwise((0.0, *places))) or places[-1] >= 1:
        expected = "two or more places in [0, 1), in order, such as 0.1,0.2"
        raise invalid_value("--data.held_out", expected, repr(text), "key")
    return places
