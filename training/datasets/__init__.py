"""Data sets by name. All yield the same thing: a `Split` of `Example`s."""

from __future__ import annotations

from pathlib import Path

from training.datasets.base import SPLITS, DataError, Example, Phrase, Split, canonical_split

__all__ = [
    "NAMES",
    "SPLITS",
    "DataError",
    "Example",
    "Phrase",
    "Split",
    "canonical_split",
    "load_split",
]

NAMES = ("scenes", "flickr8k")


def load_split(
    name: str,
    split: str,
    data_dir: Path | None,
    *,
    seed: int = 0,
    limit: int | None = None,
) -> Split:
    """Loads one split of a data set.

    Args:
        name: One of `NAMES`.
        split: "train", "dev" (or "val") or "test".
        data_dir: Where the user's copy of the files is; not read for drawn data.
        seed: For drawn data; others are what they are.
        limit: Keep the first examples only.

    Raises:
        DataError: An unknown name, a missing folder, or data that cannot be used.
    """
    split = canonical_split(split)
    if limit is not None and limit < 1:
        raise DataError(
            f"Received an invalid value for argument `limit`: expected at least 1, got {limit}."
        )
    if name == "scenes":
        from training.datasets import scenes

        # Asking for fewer, and not cutting later, saves the drawing of the others.
        count = scenes.COUNTS[split]
        return scenes.load(split, seed=seed, count=min(count, limit or count))
    if name == "flickr8k":
        from training.datasets import flickr

        return flickr.load(split, _folder(name, data_dir)).first(limit)
    raise DataError(
        f"Received an invalid value for argument `name`: expected a data set among "
        f"{', '.join(NAMES)}, got {name!r}."
    )


def _folder(name: str, data_dir: Path | None) -> Path:
    if data_dir is None:
        raise DataError(f"{name} is read from your own copy: say where it is with `--data-dir`.")
    if not Path(data_dir).is_dir():
        raise DataError(f"`--data-dir {data_dir}`: there is no such folder.")
    return Path(data_dir)
