"""What helps most with a folder of images: one sentence, and the command that follows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sat_tf.inference.run_folder import RunFolder, read_object
from sat_tf.text.detokenize import primary
from sat_tf.util.commands import command_line
from sat_tf.util.fields import flat, to_dict
from sat_tf.util.files import default_cache_dir
from training.data.dataset import read_split, recorded_data
from training.data.examples import DataError
from training.run.config import RunConfig
from training.run.recipes import NEW_WORDS, RECIPES

LEARN_ON = "folder_from_flickr8k"
"""Recipe that fine-tunes a pretrained captioner."""
SOME = 1500
"""Training images below which fine-tuning is better than new weights (experiments/TRIALS.md)."""
FEW = 60
"""Training images that are few even to fine-tune on."""


def on_few_images(images: int, config: RunConfig) -> str | None:
    """Returns a sentence if images are too few to expect good captions."""
    if config.data.name != "folder":
        return None
    more = "a few hundred images give plain sentences, a few thousand good ones"
    if config.init_from is not None:
        few = f"{images} training images are few even to fine-tune {config.init_from}: {more}."
        return few if images < FEW else None
    few = f"{images} training images are few for new weights: fine-tune a pretrained captioner"
    return f"{few} (`--recipe {LEARN_ON}`); {more}." if images < SOME else None


def next_command(
    images: int, config: RunConfig, data_dir: Path | None, without_weights: bool = False
) -> str:
    """Returns the training that helps most, with the flags that were given.

    It fine-tunes a pretrained captioner if images are few, or the encoder's weights are missing.
    """
    own = config.init_from is None and config.data.name == "folder"
    recipe = LEARN_ON if own and (images < SOME or without_weights) else config.recipe
    words = ["--recipe", recipe]
    words += [] if data_dir is None else ["--data-dir", str(data_dir)]
    given, usual = flat(to_dict(config)), flat(to_dict(RECIPES[config.recipe]))
    given |= {"encoder.weights": "FILE"} if without_weights else {}
    for key, value in given.items():
        kept = recipe == config.recipe or key.startswith("data.")
        if kept and value != usual[key]:
            words += [f"--{key.replace('_', '-')}", str(value)]
    english = config.data.unit == "words" and primary(config.data.language) == "en"
    if recipe == LEARN_ON and not english and not {*NEW_WORDS} & {*words}:
        words += NEW_WORDS
    return command_line("training.train", *words)


def after_training(folder: RunFolder, config: RunConfig, data_dir: Path | None) -> Iterator[str]:
    """Yields what a run on a folder should have said of its data, and the command that follows."""
    if config.data.name != "folder":
        return
    images = read_object(folder.data)["amount"]["images"]
    if sentence := on_few_images(images, config):
        yield f"Warning: {sentence}"
    following = next_command(images, config, data_dir)
    if config.init_from is None and LEARN_ON in following:
        yield f"Next: {following}"
        return
    try:
        record = recorded_data(folder.path, data_dir)
        read_split(config.data, "test", data_dir, default_cache_dir(), record)
    except DataError:
        yield "There is no test image: scores of dev, which training has seen, are the only ones."
    else:
        command = command_line("training.evaluate", "--run-dir", folder, "--split", "test")
        yield f"Next: {command}"
