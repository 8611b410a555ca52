"""Sentences on data that are too few, or too alike, to learn captions from, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sat_tf.inference.run_folder import RunFolder, read_object
from sat_tf.text.detokenize import primary
from sat_tf.util.commands import command_line
from sat_tf.util.fields import flat, to_dict
from sat_tf.util.files import default_cache_dir
from training.data.captions import Amount
from training.data.config import DataConfig
from training.data.dataset import read_split, recorded_data
from training.data.examples import DataError
from training.run.recipes import NEW_WORDS, RECIPES

LEARN_ON = "folder_from_flickr8k"
"""Recipe that fine-tunes a captioner that ships."""
FEW = 300
"""Training images below which new weights learn no sentences (experiments/TRIALS.md)."""
SOME = 1500
"""Training images below which fine-tuning a captioner is better than new weights."""
FEW_TO_LEARN_ON = 60
# Of photographs that people describe, 87 to 100 % of the captions differ, and at most 20 % of
# their words are in most captions; of templates with one word exchanged, over 80 %.
_DISTINCT = 0.3
_COMMON = 0.6
_COMPARABLE = 10  # captions; of two, every word is in at least half


def sentences(amount: Amount, data: DataConfig, init_from: str | None) -> Iterator[str]:
    """Yields a sentence if images are too few to expect sentences, one if captions are alike."""
    count, learns_on = amount.images, init_from is not None
    images = f"{count} training images are" if count != 1 else "1 training image is"
    more = "a few hundred give plain sentences, a few thousand good ones"
    if learns_on and count < FEW_TO_LEARN_ON:
        expected = (
            "frequent words, repeated"
            if in_words_new_to_ours(data, init_from)
            else "its sentences with some of your words"
        )
        yield (
            f"{images} few even to fine-tune {init_from}: expect {expected}. More "
            f"images help most: {more}."
        )
    elif not learns_on and count < SOME:
        expected = (
            f"{images} too few to expect sentences from new weights: expect "
            "frequent words, repeated."
            if count < FEW
            else f"{images} few: expect short, common sentences."
        )
        yield (
            f"{expected} What helps most: to fine-tune a captioner that knows sentences "
            f"(`--recipe {LEARN_ON}`), then more images: {more}."
        )
    alike = amount.distinct < _DISTINCT * amount.captions or amount.common > _COMMON
    if alike and amount.captions >= _COMPARABLE:
        yield (
            f"The training captions are nearly alike ({amount.distinct:,} different ones among "
            f"{amount.captions:,}; {amount.common:.0%} of their words are in most captions): "
            "captions will be the most frequent ones, whatever the image. Describe what differs "
            "between images; labels of a few kinds are a task for a classifier."
        )


def after_training(
    folder: RunFolder, data: DataConfig, settings: Mapping[str, Any], data_dir: Path | None
) -> Iterator[str]:
    """Yields what a run on a folder of one's own should have said of its data, and what is next.

    Args:
        folder: The run's folder.
        data: Its data set.
        settings: All its settings, by key.
        data_dir: Where its data is.
    """
    if data.name != "folder":
        return
    amount = Amount(**read_object(folder.data)["amount"])
    found = sentences(amount, data, settings["init_from"])
    yield from (f"Warning: {sentence}" for sentence in found)
    following = next_command(amount, data, settings, data_dir)
    if settings["init_from"] is None and LEARN_ON in following:
        yield f"Next: {following}"
        return
    try:
        record = recorded_data(folder.path, data_dir)
        read_split(data, "test", data_dir, default_cache_dir(), record)
    except DataError:
        yield "There is no test image: scores of dev, which training has seen, are the only ones."
    else:
        command = command_line("training.evaluate", "--run-dir", folder, "--split", "test")
        yield f"Next: {command}"


def next_command(
    amount: Amount,
    data: DataConfig,
    settings: Mapping[str, Any],
    data_dir: Path | None,
    no_weights: bool = False,
) -> str:
    """Returns the training that helps most, as a command.

    It fine-tunes the captioner that ships if images are few, or the encoder has no weights here.
    Arguments as in `after_training`.
    """
    own = settings["init_from"] is None and data.name == "folder"
    learn_on = own and (amount.images < SOME or no_weights)
    recipe = LEARN_ON if learn_on else settings["recipe"]
    words = ["--recipe", recipe]
    words += [] if data_dir is None else ["--data-dir", str(data_dir)]
    usual = flat(to_dict(RECIPES[settings["recipe"]]))
    given = dict(settings) | ({"encoder.weights": "FILE"} if no_weights else {})
    for key, value in given.items():
        kept = recipe == settings["recipe"] or key.startswith("data.")
        if kept and value != usual[key]:
            words += [f"--{key.replace('_', '-')}", str(value)]
    new = recipe == LEARN_ON and in_words_new_to_ours(data, settings["init_from"])
    if new and not {*NEW_WORDS} & {*words}:
        words += NEW_WORDS
    return command_line("training.train", *words)


def in_words_new_to_ours(data: DataConfig, init_from: str | None) -> bool:
    """Returns whether the captioner that ships, from which a run may start, lacks its words."""
    english = data.unit == "words" and primary(data.language) == "en"
    return not english and init_from in (None, RECIPES[LEARN_ON].init_from)
