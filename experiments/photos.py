"""Joins the photographs of `photos.sh`: `python -m experiments.photos FLICKR8K WIDE OUT`.

OUT has the images by link, and the captions in one table.

FLICKR8K holds the data set's images, its captions and its lists; WIDE has a folder per further set,
with images and `captions.csv` (image, caption, split). Captions end without a full stop.
"""

from __future__ import annotations

import argparse
import csv
from collections import Counter
from pathlib import Path

FLICKR8K_CAPTIONS = 2  # of an image: the captioner that training starts from has learned all five
TIMES = {"pascal_animals": 4, "ids_ade": 2}  # small sets are repeated


def flickr8k(folder: Path) -> list[tuple[str, str, str]]:
    """Returns image, caption and split: all of dev, the first ones of train."""
    splits = {
        name: split
        for split in ("train", "dev")
        for name in (folder / f"Flickr_8k.{split}Images.txt").read_text("utf-8").split()
    }
    rows, seen = [], Counter()
    for line in (folder / "Flickr8k.token.txt").read_text("utf-8").splitlines():
        key, caption = line.split("\t")
        image = key.rpartition("#")[0]
        split, seen[image] = splits.get(image), seen[image] + 1
        if split == "dev" or (split == "train" and seen[image] <= FLICKR8K_CAPTIONS):
            rows.append((image, caption, split))
    return rows


def main(source: Path, wide: Path, out: Path) -> None:
    """Writes the folder OUT."""
    out.mkdir()
    (out / "flickr8k").symlink_to(next(source.glob("Flicker8k_Dataset")).resolve())
    rows = [(f"flickr8k/{image}", *rest) for image, *rest in flickr8k(source)]
    for folder in sorted(path.parent for path in wide.glob("*/captions.csv")):
        (out / folder.name).symlink_to(folder.resolve())
        with (folder / "captions.csv").open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                one = f"{folder.name}/{row['image']}", row["caption"].rstrip(" ."), row["split"]
                rows += [one] * (TIMES.get(folder.name, 1) if row["split"] == "train" else 1)
    with (out / "captions.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("image", "caption", "split"))
        writer.writerows(rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("source", "wide", "out"):
        parser.add_argument(name, type=Path)
    main(**vars(parser.parse_args()))
