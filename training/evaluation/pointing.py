"""Grounding: attention maps against the boxes of phrases. NumPy only.

A map `alpha [h, w]` is a density, constant inside each cell of an h x w grid over the image, and
is divided by the sum. A box is `(top, left, bottom, right)` in [0, 1] of the image; a phrase is
located by the union of its boxes.

pointing game
    1 if the centre of the arg max cell is in a box, edges included. If k cells share the
    maximum, the share of their centres inside: the expected value of a fair choice among them.
    With `_15px`, also up to 15 pixels from a box, the tolerance of the original game.
attention correctness
    Mass of alpha inside the boxes; a cell cut by an edge counts with its area inside.

Controls, scored the same way: `uniform` maps (pointing game: share of cell centres in the boxes;
correctness: their area), `centre` maps (all mass on the middle cell, or spread over the two or four
around the middle), `shuffled` maps (each phrase gets the map of another one).

References:
    Zhang et al. (2016), "Top-down Neural Attention by Excitation Backprop", arXiv:1608.00507
    (pointing game); Liu et al. (2017), "Attention Correctness in Neural Image Captioning",
    arXiv:1605.09553.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from training.data.examples import Box
from training.evaluation.bootstrap import Interval, resampled_means

SMALL = 0.25
"""Phrases with boxes on less than this share of the image are small."""
METRICS = ("pointing_game", "attention_correctness")
TOLERANCE = 15
"""Pixels around a box that count as inside it, in the pointing game of Zhang et al."""


SIZES = {
    "pointing_game": "phrases",
    "pointing_game_small": "phrases_small",
    "attention_correctness": "phrases",
    "attention_correctness_small": "phrases_small",
    "nll_phrase": "phrase_words",
    "nll_phrase_gain": "phrase_words",
}
"""Score -> key of the items that it is a mean over."""


@dataclass(frozen=True, eq=False)
class PhraseScores:
    """Scores of every phrase, of attention and of each control."""

    values: Mapping[str, np.ndarray]
    """`pointing_game`, `attention_correctness`, and these with the suffix of a control -> `[N]`,
    0-100."""
    covered: np.ndarray  # `[N, h, w]`, the share of each cell in the boxes
    centres: np.ndarray  # bool `[N, h, w]`, whether the boxes hold the centre of the cell
    images: np.ndarray  # `[N]`, index of the image of each phrase
    types: Sequence[tuple[str, ...]]  # of each phrase

    @property
    def shares(self) -> np.ndarray:
        """Area of each union as a share of the image, `[N]`."""
        return self.covered.mean(axis=(1, 2))

    def means(self, chosen: slice | Sequence[int] = slice(None)) -> dict[str, float]:
        """Averages every score, and the same over small phrases (`_small`) if there are any.

        The suffix of a control is last: `pointing_game_small_centre`.
        """
        own = {name: of_all[chosen] for name, of_all in self.values.items()}
        found = {name: float(values.mean()) for name, values in own.items()}
        small = self.shares[chosen] < SMALL
        if small.any():
            found |= {_small(name): float(values[small].mean()) for name, values in own.items()}
        return found

    def intervals(self) -> dict[str, Interval]:
        """Computes the interval of every mean and of its gain on the centre (`..._over_centre`).

        Images are drawn with replacement, with all their phrases.
        """
        own = self.values
        compared = own | {f"{m}_over_centre": own[m] - own[f"{m}_centre"] for m in METRICS}
        small = self.shares < SMALL
        found = {}
        for name, of_all in compared.items():
            found[name] = over_images(self.images, np.ones_like(small), of_all)
            if small.any():
                found[_small(name)] = over_images(self.images, small, of_all)
        return found

    def by_type(self) -> dict[str, dict[str, float]]:
        """Returns type -> number of `phrases`, and the means over them."""
        members: dict[str, list[int]] = {}
        for number, names in enumerate(self.types):
            for name in set(names):
                members.setdefault(name, []).append(number)
        return {n: {"phrases": len(own)} | self.means(own) for n, own in sorted(members.items())}


def score_phrases(
    maps: Sequence[np.ndarray],
    boxes: Sequence[Sequence[Box]],
    images: Sequence[Hashable] | None = None,
    types: Sequence[tuple[str, ...]] | None = None,
    pixels: Sequence[tuple[float, float]] | None = None,
) -> PhraseScores:
    """Scores the map of each phrase against the union of its boxes.

    The control of the pointing game is the exact middle of the image: it is between the four
    central cells of an even grid, and is stronger than a choice among them. Shuffled maps come from
    another image, as long as no image owns more than half of the phrases.

    Args:
        maps: `[h, w]` each, non-negative with a positive sum, all of one size.
        boxes: At least one box per phrase, `(top, left, bottom, right)` in [0, 1].
        images: Image of each phrase; by default, each has its own.
        types: Types of each phrase; none by default.
        pixels: Height and width of a pixel of each phrase's image, shares of its sides, for the
            pointing game with a tolerance; without, there is none.
    """
    images = range(len(maps)) if images is None else images
    numbers = {image: number for number, image in enumerate(dict.fromkeys(images))}
    image_of = np.array([numbers[image] for image in images])
    alpha = np.stack(maps).astype(np.float64)
    alpha /= alpha.sum(axis=(1, 2), keepdims=True)
    height, width = alpha.shape[1:]
    covered = np.stack([union_coverage(own, height, width) for own in boxes])
    centres = np.stack([centres_inside(own, height, width) for own in boxes])
    middle = np.array([centres_inside(own, 1, 1)[0, 0] for own in boxes])
    maps_of = {
        "": alpha,
        "_centre": np.broadcast_to(centre_map(height, width), alpha.shape),
        "_uniform": np.full_like(alpha, 1.0 / (height * width)),
        "_shuffled": alpha[_partners(image_of)],
    }
    values = {}
    for kind, of_kind in maps_of.items():
        values[f"pointing_game{kind}"] = _pointing_game(of_kind, centres)
        values[f"attention_correctness{kind}"] = 100.0 * (of_kind * covered).sum(axis=(1, 2))
    values["pointing_game_centre"] = 100.0 * middle
    if pixels is not None:
        placed = [*zip(boxes, TOLERANCE * np.array(pixels), strict=True)]
        near = [centres_inside(own, height, width, reach) for own, reach in placed]
        values["pointing_game_15px"] = _pointing_game(alpha, np.stack(near))
        near = [centres_inside(own, 1, 1, reach)[0, 0] for own, reach in placed]
        values["pointing_game_centre_15px"] = 100.0 * np.array(near)
    return PhraseScores(values, covered, centres, image_of, types or [()] * len(maps))


def _pointing_game(maps: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Computes the share of the cells of maximal alpha that have their centre in the boxes, %."""
    best = maps == maps.max(axis=(1, 2), keepdims=True)
    return 100.0 * ((best * centres).sum(axis=(1, 2)) / best.sum(axis=(1, 2)))


def _small(name: str) -> str:
    """Turns `pointing_game_centre` into `pointing_game_small_centre`."""
    (metric,) = filter(name.startswith, METRICS)
    return f"{metric}_small{name.removeprefix(metric)}"


def union_coverage(boxes: Sequence[Box], height: int, width: int) -> np.ndarray:
    """Computes the exact share of each cell inside the union of the boxes, `[height, width]`."""
    edges = np.array(boxes)  # top, left, bottom, right
    rows = np.unique([*np.arange(height + 1) / height, *edges[:, ::2].ravel()])
    columns = np.unique([*np.arange(width + 1) / width, *edges[:, 1::2].ravel()])
    y, x = (rows[1:] + rows[:-1]) / 2.0, (columns[1:] + columns[:-1]) / 2.0
    inside = np.zeros([len(y), len(x)], bool)
    for top, left, bottom, right in boxes:
        inside |= np.outer((top <= y) & (y <= bottom), (left <= x) & (x <= right))
    areas = inside * np.outer(np.diff(rows), np.diff(columns))
    cell_rows = np.minimum((y * height).astype(int), height - 1)
    cell_columns = np.minimum((x * width).astype(int), width - 1)
    coverage = np.zeros([height, width])
    np.add.at(coverage, (cell_rows[:, None], cell_columns[None, :]), areas)
    return np.clip(coverage * height * width, 0.0, 1.0)


def centres_inside(
    boxes: Sequence[Box], height: int, width: int, reach: Sequence[float] = (0.0, 0.0)
) -> np.ndarray:
    """Marks the cells centred in one of the boxes, edges included, `[h, w]` bool.

    With a `reach` above 0, also those no further from it: `(dy / reach_y)^2 + (dx / reach_x)^2` is
    at most 1.
    """
    y = (np.arange(height) + 0.5)[:, np.newaxis] / height
    x = (np.arange(width) + 0.5) / width
    inside = np.zeros([height, width], bool)
    for top, left, bottom, right in boxes:
        beside = (np.maximum(top - y, y - bottom), np.maximum(left - x, x - right))
        # Inside along an axis is a distance of 0; without a reach, any other is too far.
        far = (np.maximum(d, 0.0) / max(r, 1e-12) for d, r in zip(beside, reach, strict=True))
        inside |= sum(np.square(share) for share in far) <= 1.0
    return inside


def centre_map(height: int, width: int) -> np.ndarray:
    """Spreads the mass over the one, two or four cells nearest to the middle, `[h, w]`."""
    middle = [(np.arange(n) >= (n - 1) // 2) & (np.arange(n) <= n // 2) for n in (height, width)]
    mass = np.outer(*middle).astype(np.float64)
    return mass / mass.sum()


def _partners(images: np.ndarray) -> np.ndarray:
    """Pairs each phrase with another, each used once, of another image if possible."""
    rng, count, sizes = np.random.default_rng(0), len(images), np.bincount(images)
    # Images in random order, random order within; a step as long as the largest leaves it.
    order = np.lexsort((rng.permutation(count), rng.permutation(len(sizes))[images]))
    partners = np.empty(count, np.int64)
    partners[order] = np.roll(order, -(int(sizes.max()) % count or 1))
    return partners


def image_means(
    images: Sequence[str], sizes: Mapping[str, np.ndarray], values: Mapping[str, np.ndarray]
) -> dict[str, dict[str, float]]:
    """Averages scores of phrases over each image.

    Args:
        images: `[N]`, image of each phrase.
        sizes: Key of what to average over -> `[N]`, how much each phrase counts.
        values: Score -> `[N]`; those over small phrases are taken from the score over all.

    Returns:
        Image -> sizes, and means of the scores of `SIZES`; without those that the image has
        nothing.
    """
    names, numbers = np.unique(images, return_inverse=True)
    rows: list[dict[str, float]] = [{} for _ in names]
    for score, key in SIZES.items():
        of_all = values.get(score.replace("_small", ""))
        if of_all is None or key not in sizes:
            continue
        totals = np.bincount(numbers, sizes[key])
        sums = np.bincount(numbers, sizes[key] * of_all)
        for number in np.flatnonzero(totals):
            rows[number][key] = int(totals[number])
            rows[number][score] = float(sums[number] / totals[number])
    return dict(zip(names.tolist(), rows, strict=True))


def over_images(images: Sequence[Hashable], sizes: np.ndarray, values: np.ndarray) -> Interval:
    """Computes the interval of a mean over phrases; images are drawn with all their phrases."""
    _, numbers = np.unique(images, return_inverse=True)
    sums = np.bincount(numbers, sizes * values)
    return resampled_means(sums, np.bincount(numbers, sizes))


def sums_and_sizes(
    rows: Mapping[str, Mapping[str, float]], score: str, images: Sequence[str]
) -> tuple[np.ndarray, np.ndarray] | None:
    """Reads the sum of a score and its size in each of these images, `[I]` each.

    Returns:
        None if no image has the score.
    """
    own = [rows.get(image, {}) for image in images]
    sizes = np.array([row[SIZES[score]] if score in row else 0 for row in own], float)
    sums = np.array([row.get(score, 0.0) for row in own]) * sizes
    return (sums, sizes) if sizes.any() else None
