"""Does attention look at what the word names: maps against the boxes of noun phrases. NumPy only.

A map `alpha [h, w]` is read as a density, constant inside each cell of an h x w grid laid over the
picture; it is divided by its sum. A box is `(top, left, bottom, right)` in [0, 1] of the picture.

pointing game
    1 if the centre of the arg max cell lies in the box, edges included. Where k cells share the
    maximum the hit counts by the share of those k centres inside: the expected value of a fair
    choice among them.
attention correctness
    Mass of alpha inside the box, a cell cut by its edge counting by the share of its area inside.

Controls, scored in the same way: `uniform` maps (pointing game: the share of cell centres in the
box; correctness: the box's share of the picture), `centre` maps (all mass on the cell in the
middle, or spread over the two or four around it), `shuffled` maps (each box gets the map of
another phrase).

References:
    Zhang et al. (2016), "Top-down Neural Attention by Excitation Backprop", arXiv:1608.00507
    (pointing game); Liu et al. (2017), "Attention Correctness in Neural Image Captioning",
    arXiv:1605.09553.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

Box = tuple[float, float, float, float]


def grounding_scores(
    maps: Sequence[np.ndarray],
    boxes: Sequence[Box],
    rng_seed: int = 0,
    groups: Sequence[Hashable] | None = None,
) -> dict[str, float]:
    """Means over phrases of the pointing game and of attention correctness, with controls.

    Args:
        maps: One `[h, w]` map a phrase, non-negative with a positive sum; sizes may differ.
        boxes: One box a phrase.
        rng_seed: Of the shuffled control.
        groups: The picture of each phrase: shuffled maps then come from another picture, as long
            as no picture owns more than half of the phrases.

    Returns:
        `pointing_game`, `attention_correctness`, the same with `_uniform`, `_centre` and
        `_shuffled` (the last absent for a single phrase), `box_share` (the boxes' mean share of
        the picture) and `pointing_game_ceiling` (boxes that hold any cell centre, thus can be
        hit), 0-100; `correctness_ratio`, mean correctness / mean box share, a ratio.

    Raises:
        ValueError: No phrases, lengths that differ, a map or a box that is not one.
    """
    maps = [_checked_map(alpha) for alpha in maps]
    boxes = [_checked_box(box) for box in boxes]
    if not maps or len(maps) != len(boxes):
        raise ValueError(
            "Received an invalid value for argument `maps`: expected one map for each box and at "
            f"least one, got {len(maps)} maps and {len(boxes)} boxes."
        )
    kinds = {
        "": maps,
        "_uniform": [np.full(alpha.shape, 1.0 / alpha.size) for alpha in maps],
        "_centre": [_centre_map(*alpha.shape) for alpha in maps],
    }
    if len(maps) > 1:
        kinds["_shuffled"] = [maps[n] for n in _partners(len(maps), rng_seed, groups)]
    scores = {}
    for metric, score in (
        ("pointing_game", pointing_game),
        ("attention_correctness", attention_correctness),
    ):
        for kind, values in kinds.items():
            scores[metric + kind] = _percent(score, values, boxes)
    share = _percent(lambda _, box: box_share(box), maps, boxes)
    ceiling = _percent(lambda alpha, box: _centres_inside(box, *alpha.shape).any(), maps, boxes)
    ratio = scores["attention_correctness"] / share
    return scores | {
        "correctness_ratio": ratio,
        "box_share": share,
        "pointing_game_ceiling": ceiling,
    }


def grounding_by_group(
    maps: Sequence[np.ndarray], boxes: Sequence[Box], groups: Sequence[Hashable]
) -> dict[Hashable, dict[str, float]]:
    """The same of each group of phrases, such as a picture's: means, and over how many.

    Args:
        maps: As in `grounding_scores`.
        boxes: As there.
        groups: Of each phrase.

    Returns:
        Group -> `phrases`, how many it has, `pointing_game` and `attention_correctness`, 0-100.
    """
    members: dict[Hashable, list[int]] = {}
    for number, group in enumerate(groups):
        members.setdefault(group, []).append(number)
    scores = {"pointing_game": pointing_game, "attention_correctness": attention_correctness}
    return {
        group: {"phrases": len(own)}
        | {
            name: _percent(score, [maps[n] for n in own], [boxes[n] for n in own])
            for name, score in scores.items()
        }
        for group, own in members.items()
    }


def pointing_game(alpha: np.ndarray, box: Box) -> float:
    """Share of the arg max cells, `[h, w]`, whose centre lies in the box: 0 or 1 without ties."""
    return float(_centres_inside(box, *alpha.shape)[alpha == alpha.max()].mean())


def attention_correctness(alpha: np.ndarray, box: Box) -> float:
    """Share of the mass of `alpha` `[h, w]` inside the box, in [0, 1]."""
    top, left, bottom, right = box
    rows = _covered(top, bottom, alpha.shape[0])
    columns = _covered(left, right, alpha.shape[1])
    return float(rows @ alpha @ columns / alpha.sum())


def box_share(box: Box) -> float:
    """The box's share of the picture, in [0, 1]."""
    top, left, bottom, right = box
    return (bottom - top) * (right - left)


def _percent(score, maps: Sequence[np.ndarray], boxes: Sequence[Box]) -> float:
    pairs = zip(maps, boxes, strict=True)
    return 100.0 * float(np.mean([score(alpha, box) for alpha, box in pairs]))


def _covered(low: float, high: float, cells: int) -> np.ndarray:
    """Share of each of the cells on [0, 1] that lies between low and high, `[cells]`."""
    edges = np.clip(np.arange(cells + 1) / cells, low, high)
    return np.diff(edges) * cells


def _centres_inside(box: Box, height: int, width: int) -> np.ndarray:
    """Which cell centres lie in the box, edges included, `[h, w]` bool."""
    top, left, bottom, right = box
    y = (np.arange(height) + 0.5) / height
    x = (np.arange(width) + 0.5) / width
    return np.outer((top <= y) & (y <= bottom), (left <= x) & (x <= right))


def _centre_map(height: int, width: int) -> np.ndarray:
    """Even mass on the cells nearest to the middle: one, two or four of them, `[h, w]`."""
    middle = [(np.arange(n) >= (n - 1) // 2) & (np.arange(n) <= n // 2) for n in (height, width)]
    mass = np.outer(*middle).astype(np.float64)
    return mass / mass.sum()


def _partners(count: int, seed: int, groups: Sequence[Hashable] | None) -> np.ndarray:
    """For each phrase another one, each used once, from another group where that can be."""
    if groups is not None and len(groups) != count:
        raise ValueError(
            "Received an invalid value for argument `groups`: expected one for each map "
            f"({count}), got {len(groups)}."
        )
    number = {group: n for n, group in enumerate(dict.fromkeys(groups or range(count)))}
    labels = np.array([number[group] for group in (groups or range(count))])
    rng = np.random.default_rng(seed)
    # Groups in random order, random order inside each; a step of the largest group leaves it.
    order = np.lexsort((rng.permutation(count), rng.permutation(len(number))[labels]))
    step = int(np.bincount(labels).max()) % count or 1
    partners = np.empty(count, np.int64)
    partners[order] = np.roll(order, -step)
    return partners


def _checked_map(alpha: np.ndarray) -> np.ndarray:
    alpha = np.asarray(alpha, np.float64)
    if alpha.ndim != 2 or not np.isfinite(alpha).all() or alpha.min() < 0 or alpha.sum() <= 0:
        raise ValueError(
            "Received an invalid value for argument `maps`: expected finite non-negative [h, w] "
            f"arrays with a positive sum, got one of shape {alpha.shape}, sum {alpha.sum()}."
        )
    return alpha


def _checked_box(box: Box) -> Box:
    top, left, bottom, right = (float(edge) for edge in box)
    if not (0.0 <= top < bottom <= 1.0 and 0.0 <= left < right <= 1.0):
        raise ValueError(
            "Received an invalid value for argument `boxes`: expected (top, left, bottom, right) "
            f"in [0, 1] with a positive area, got {tuple(box)}."
        )
    return top, left, bottom, right
