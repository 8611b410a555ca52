"""The card of a published captioner: data, licence, scores, and what it is not for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sat_tf.config import JOIN, other_search
from sat_tf.fields import to_dict
from sat_tf.run_folder import RunFolder, outdated_note
from training.config import RunConfig
from training.evaluate.reports import score_rows
from training.tables import markdown_table

_PHOTOGRAPHS = "non-commercial research and education only, as its photographs belong to others"
_SOURCES = {
    "scenes": ("drawn scenes of this project", None),
    "flickr8k": ("Flickr8k (Hodosh et al., 2013)", _PHOTOGRAPHS),
    "flickr30k": ("Flickr30k (Young et al., 2014)", _PHOTOGRAPHS),
    "coco_captions": ("COCO captions (Chen et al., 2015)", "the terms of cocodataset.org"),
    "folder": ("the publisher's own images", None),
}
_UNSTATED = "not stated; ask the publisher"

_ORIGINS = {
    "keras_hub:dinov2_small": " (DINOv2 of Meta AI, Oquab et al., 2024, Apache-2.0)",
    "mobilenet_v2": " (Sandler et al., 2018, ImageNet weights, Apache-2.0)",
    "resnet50": " (ImageNet weights of He et al., 2016, converted by Keras, MIT)",
}

_SCORES = {
    **{f"bleu_{n}": f"BLEU-{n}" for n in range(1, 5)},
    "meteor": "METEOR",
    "cider": "CIDEr",
    "pointing_game": "maximum of the map inside the named object's box, % of phrases",
    "pointing_game_centre": "the same of the image centre in place of the map",
    "calibration_error": "calibration error of the words' probabilities, percentage points",
}
"""Scores on the card, by their names in a report."""

_TEACHING = {
    "boxes": "Attention was supervised by people's boxes of what the training captions name: the "
    "maps show what those boxes taught it.",
    "locator": "Attention was supervised by a word locator, which learned from the captions of the "
    "training images where words are; no boxes were used.",
    "captioners": "Words were learned from what other captioners predict, beside the captions.{}",
    "reward": "Sampled captions were rewarded for CIDEr-D, alone or with other metrics.",
}
"""Sentences on teachers, see `training.tasks.captioning.teachers`."""

_INHERITED = {
    "boxes": "supervised by people's boxes",
    "locator": "supervised by a word locator",
    "captioners": "taught by other captioners",
    "reward": "rewarded for caption metrics",
}
"""Training of the captioners that a student learned from."""

_MAPS = (
    "A map shows which parts of the image the decoder read for a word, which is no proof that the "
    "word rests on them.\n"
)

_CARD = """---
library_name: sat_tf
pipeline_tag: image-to-text
language: {language}
license: other
license_name: {short_licence}
---

# {recipe}

{purpose}, by sat_tf: *Show, Attend and Tell* (Xu et al., 2015, arXiv:1502.03044) with {attention}
attention.

```python
import sat_tf

caption = sat_tf.load("{name}").caption("photo.jpg")
caption.text  # the sentence{alpha}
```

The files are JSON and arrays of NumPy; nothing in them is executed. `captioner.json` has their
SHA-256, which loading checks. Weights are rounded, those of the encoder to 8 bits and of the
decoder to 10, with a scale per {group} of them.{check}

## Data and licence

- Trained on {source}.{teaching}
- Encoder: {encoder}
- Use of these weights: {licence}.

## Scores

{scores}

## For, and not for

For teaching, for research on attention, and for a first look at what such a captioner does.

Not for captions that people rely on who cannot see the image, for decisions about people, for
surveillance, or for images unlike those it was trained on: it then writes a fluent sentence about
something else. It repeats the biases of its training captions, such as guesses of gender and age.
{maps}"""


def make_card(
    run_dir: Path,
    config: RunConfig,
    name: str,
    licence: str | None = None,
    check: str = "",
    weights_sha256: str | None = None,
) -> str:
    """Returns the card as Markdown.

    Args:
        run_dir: The run, with its evaluations.
        config: Its configuration.
        name: What `sat_tf.load` takes.
        licence: What others may do with the weights; by default what the data set asks for.
        check: A sentence that compares the rounded weights with the run's, if they were.
        weights_sha256: SHA-256 of the weights that are published; those in the run by default,
            which training may have replaced since.
    """
    from sat_tf.compact_weights import GROUP

    source, terms = _SOURCES.get(config.data.name, (config.data.name, None))
    licence = licence or (terms if terms else _UNSTATED)
    attends = config.attention.kind != "none"
    looks = "An image captioner that shows where it looked for each word"
    return _CARD.format(
        purpose=looks if attends else "An image captioner that looks nowhere, for comparison",
        alpha="\ncaption.alpha  # the attention map of each word" if attends else "",
        maps=_MAPS if attends else "",
        language=config.data.language,
        short_licence=config.data.name if licence == terms else "see-below",
        recipe=config.recipe,
        attention=config.attention.kind if attends else "no",
        name=name,
        group=GROUP,
        check=f" {check}" if check else "",
        source=source,
        teaching=_teaching(run_dir, config),
        encoder=_encoder(config.encoder),
        licence=licence,
        scores=_scores(run_dir, config, weights_sha256 or RunFolder(run_dir).weights_sha256()),
    )


def _teaching(run_dir: Path, config: RunConfig) -> str:
    """Says what taught attention and captions beside the captions, in this run or before it."""
    from training.tasks.captioning.teachers import teachers_of

    found = teachers_of(run_dir, config)
    facts = "; ".join(f"some had been {_INHERITED[name]}" for name in found.inherited)
    before = f" Of those captioners, {facts}." if facts else ""
    return "".join(f" {_TEACHING[name].format(before)}" for name in found.own)


def _encoder(encoder: Any) -> str:
    named = " and ".join(name + _ORIGINS.get(name, "") for name in encoder.name.split(JOIN))
    return f"{named}, {'trained with the decoder' if encoder.trainable else 'frozen'}."


def _scores(run_dir: Path, config: RunConfig, weights_sha256: str | None) -> str:
    """Returns a table of the main scores for each split that the weights were evaluated on."""
    parts = []
    folder = RunFolder(run_dir)
    for path in folder.reports():
        report = json.loads(path.read_text("utf-8"))
        if "captions" in report:  # of captions from elsewhere
            continue
        if outdated := outdated_note(report, weights_sha256):
            parts.append(outdated)
            continue
        scores, intervals = (_chosen(report.get(key) or {}) for key in ("scores", "intervals"))
        header = ("score", report["split"], "95 % interval")[: 3 if intervals else 2]
        table = markdown_table(header, score_rows(scores, intervals))
        parts.append(f"{report['images']:,} images of the {report['split']} split:\n\n{table}")
        measured = report.get("search")  # reports of early versions have none
        parts += filter(None, [measured and other_search(measured, to_dict(config.search))])
    return "\n\n".join(parts) or "None were measured."


def _chosen(values: Mapping[str, Any]) -> dict[str, Any]:
    return {label: values[name] for name, label in _SCORES.items() if name in values}


def comparison_sentence(equal: float, images: int, differences: Mapping[str, float]) -> str:
    """Describes a comparison of the rounded weights with the run's."""
    scores = ", ".join(f"{_SCORES[name]} {change:+.2f}" for name, change in differences.items())
    return (
        f"They give the same caption as the run's for {100 * equal:.1f} % of {images:,} images; "
        f"scores change by {scores}."
    )
