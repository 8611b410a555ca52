"""Grounding of attention in the boxes of noun phrases, of references and generated captions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sat_tf.runs import Caption
from training.data.examples import Split
from training.evaluate.teacher_forcing import PhraseMap
from training.metrics.grounding import METRICS, grounding_scores, score_phrases
from training.metrics.image_means import image_means


def reference_grounding(
    found: Sequence[PhraseMap],
) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Scores the teacher-forced map of every reference noun phrase.

    Returns:
        Scores, those of phrases held out of training with the suffix `_held_out`; and image id ->
        `phrases`, and the means over them of `pointing_game` and `attention_correctness`.
    """
    maps, boxes = [one.alpha for one in found], [one.phrase.box for one in found]
    ids = [one.image_id for one in found]
    scores = grounding_scores(maps, boxes, groups=ids)
    held_out = [one for one in found if not one.phrase.seen]
    if held_out:
        part = grounding_scores([o.alpha for o in held_out], [o.phrase.box for o in held_out])
        scores |= {f"{name}_held_out": part[name] for name in METRICS}
    values = score_phrases(maps, [[box] for box in boxes], ids).values
    sizes = {"phrases": np.ones(len(found))}
    return scores, image_means(ids, sizes, {name: values[name] for name in METRICS})


def generated_grounding(captions: Mapping[str, Caption], split: Split) -> dict[str, float]:
    """Scores the maps of reference noun phrases that generated captions repeat word for word.

    Returns:
        `generated_match_rate`, the share of the distinct reference phrases of each image found in
        its caption, and the scores over these, `generated_pointing_game` and
        `generated_attention_correctness`, if any was found.
    """
    maps, boxes, wanted = [], [], 0
    for example in split.examples:
        caption = captions.get(example.image_id)
        if caption is None:
            continue
        distinct = {phrase.text: phrase.box for phrase in example.phrases}
        wanted += len(distinct)
        for text, box in distinct.items():
            end = _last_word(caption.words, text.split())
            if end is not None:
                maps.append(caption.alpha[end])
                boxes.append(box)
    scores = {"generated_match_rate": 100.0 * len(maps) / max(wanted, 1)}
    if maps:
        found = grounding_scores(maps, boxes)
        scores |= {f"generated_{name}": found[name] for name in METRICS}
    return scores


def _last_word(words: tuple[str, ...], phrase: list[str]) -> int | None:
    """Finds the phrase in the caption; returns the index of its last word."""
    for start in range(len(words) - len(phrase) + 1):
        if list(words[start : start + len(phrase)]) == phrase:
            return start + len(phrase) - 1
    return None
