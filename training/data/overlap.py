"""Images of an evaluation that the captioner learned from, see `seen_images`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from training.data.examples import Example
from training.data.seen_images import COCO, CONTENT, FLICKR, SeenImages, content_key_of, photo_id

RULES = {FLICKR: "Flickr's photo id", COCO: "COCO's image id", CONTENT: "content"}
"""Kinds that show that two images are the same, by their names in a report."""

_SHOWN = 3


@dataclass(frozen=True)
class Overlap:
    """Images of a split that a captioner learned from.

    Attributes:
        images: Number of images of the split.
        found: Image id -> name of the source that has it; empty for the captioner itself.
        rules: Kind of `RULES` -> images that it found.
        unknown: What the captioner started or learned from without a record of its images.
    """

    images: int
    found: Mapping[str, str] = field(default_factory=dict)
    rules: Mapping[str, int] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()

    def details(self) -> dict[str, Any]:
        """Returns the figures for a report."""
        rules = {RULES[kind]: count for kind, count in self.rules.items()}
        return {
            "seen": len(self.found),
            "by": rules,
            "images": list(self.found),
            "notes": self.notes(),
        }

    def notes(self, with_boxes: Collection[str] | None = None) -> list[str]:
        """Returns sentences on what was found, or could not be checked; none on clean splits.

        Args:
            with_boxes: The images of the split that have boxes, if they are compared with maps.
        """
        notes = []
        if self.found:
            rules = ", ".join(f"{count:,} by {RULES[k]}" for k, count in self.rules.items())
            owners = Counter(self.found.values())
            parts = [f"{count:,} of {name or 'its own'}" for name, count in owners.items()]
            whose = "" if list(owners) == [""] else f" ({'; '.join(parts)})"
            boxes = ""
            if with_boxes is not None:
                common = sum(image in self.found for image in with_boxes)
                boxes = f" Of the {len(with_boxes):,} images with boxes, {common:,} are among them."
            notes.append(
                f"{len(self.found):,} of {self.images:,} images are among those that the captioner "
                f"learned from{whose}, {rules}, such as {_names(list(self.found))}: their scores "
                f"are not those of new images.{boxes}"
            )
        if self.unknown:
            notes.append(
                "Whether images were seen in training cannot be checked for "
                f"{', '.join(self.unknown)}, without a record of training images."
            )
        return notes


UNCHECKED = (
    "Whether images were seen in training cannot be checked: the captioner is of a version that "
    "did not record its training images."
)


def seen_notes(overlap: Overlap | None, with_boxes: Collection[str] | None = None) -> list[str]:
    """Returns the sentences on an overlap; None if there is no record to check against."""
    return [UNCHECKED] if overlap is None else overlap.notes(with_boxes)


def find_overlap(seen: SeenImages | None, examples: Sequence[Example], data: str) -> Overlap | None:
    """Finds the examples of a data set that a captioner learned from; None without a record."""
    if seen is None:
        return None
    owner: dict[int, tuple[str, str]] = {}  # index -> source, kind
    ids = [photo_id(example.image_id, data) for example in examples]
    for kind in (FLICKR, COCO):
        values = [one[1] if one and one[0] == kind else None for one in ids]
        _find(seen, kind, values, owner)
    if any(CONTENT in source.keys for source in seen.sources):
        # A match by its id needs no file; what is left is opened.
        rest = enumerate(examples)
        values = [None if index in owner else content_key_of(one) for index, one in rest]
        _find(seen, CONTENT, values, owner)
    found = {examples[index].image_id: owner[index][0] for index in sorted(owner)}
    rules = Counter(kind for _, kind in owner.values())
    return Overlap(len(examples), found, dict(rules), seen.unknown)


def _find(
    seen: SeenImages, kind: str, values: Sequence[int | None], owner: dict[int, tuple[str, str]]
) -> None:
    """Adds the images whose keys of a kind the first source has that knows them."""
    places = [index for index, value in enumerate(values) if value is not None]
    known = np.array([values[index] for index in places], np.int64)
    for source in seen.sources:
        for row in np.flatnonzero(np.isin(known, source.keys.get(kind, ()))):
            owner.setdefault(places[row], (source.name, kind))


def _names(images: Sequence[str]) -> str:
    more = ", ..." if len(images) > _SHOWN else ""
    return ", ".join(map(repr, images[:_SHOWN])) + more
