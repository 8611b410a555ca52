"""Learn where words are from captions alone: `python -m training.locate --out FILE`.

Takes the settings of the training that is to use the file: its data and its frozen encoder. Then::

    python -m training.train ... --attention.supervision-weight 0.5 --attention.teacher FILE
"""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from sat_tf.commands import check_file, exit_status, loading
from sat_tf.encoder_names import check_encoder
from sat_tf.errors import invalid_value
from sat_tf.fields import PositiveInt, Range, check_fields
from sat_tf.files import default_cache_dir
from training.cli import Settings, check_data_dir, parse_settings
from training.init_from import check_init_from

_SHOWN = 8


@dataclass(frozen=True)
class Arguments:
    """Learn where words are; takes all configuration keys of training.train."""

    config: Settings
    """The recipe's settings, those of the training."""
    out: Path = Path("locator.npz")
    """The file to write, for --attention.teacher."""
    data_dir: Path | None = None
    """Your copy of the data set."""
    cache_dir: Path | None = None
    """Feature stores; $SAT_TF_CACHE, $XDG_CACHE_HOME/sat_tf or ~/.cache/sat_tf by default."""
    epochs: PositiveInt = 5
    """Passes over the training images."""
    min_images: PositiveInt = 10
    """Fewest images whose captions have a word."""
    min_auroc: Annotated[float, Range(50, 100)] = 80.0
    """Leave out words that are recognised less reliably: area under the ROC curve, 50 to 100."""

    def __post_init__(self) -> None:
        check_fields(self)


def check(arguments: Arguments) -> None:
    """Checks the arguments before TensorFlow is loaded.

    Raises:
        ValueError: The message names the flag.
        OSError: The data are not there.
    """
    config = arguments.config
    if config.encoder.trainable:
        expected = "False, as the annotations of a trained encoder change"
        raise invalid_value("--encoder.trainable", expected, True, "key")
    if arguments.out.suffix != ".npz":
        raise invalid_value("--out", "a name that ends in .npz", arguments.out)
    check_encoder(config.encoder)
    check_data_dir(config, arguments.data_dir)
    check_init_from(config)
    check_file("--out", arguments.out)


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    given = sys.argv[1:] if argv is None else argv
    purpose = "Learn where words are, from captions alone."
    return exit_status(lambda: run(parse_settings(Arguments, given, "training.locate", purpose)))


def run(arguments: Arguments) -> int:
    """Learns the locator and writes it."""
    check(arguments)
    config, out = arguments.config, arguments.out
    cache_dir = arguments.cache_dir or default_cache_dir()
    with loading():
        import keras

        from training.data.input_source import open_input_source
        from training.data.seen_images import SeenImages
        from training.features import origin_of
        from training.inputs import load_data
        from training.model import first_model
        from training.teach.word_locator import learn
    keras.utils.set_random_seed(config.seed)
    data = load_data(config.data, arguments.data_dir)
    model = first_model(config.captioner, config.fit.precision, data, origin_of(config))
    resize, mirror = config.encoder.resize, config.data.mirror
    source = open_input_source(model.encoder, resize, data.train, cache_dir, mirror)
    locator, areas = learn(
        model.encoder,
        data.train.examples,
        source,
        data.vocabulary,
        min_images=arguments.min_images,
        min_auroc=arguments.min_auroc,
        epochs=arguments.epochs,
        seed=config.seed,
    )
    seen = SeenImages.of(data.train.examples, config.data.name)
    dataclasses.replace(locator, seen=seen).save(out)
    best = sorted(locator.words, key=lambda word: -areas[word])
    print(
        f"Wrote {out}: {len(best)} of {len(areas)} words can be located, best "
        f"{', '.join(best[:_SHOWN])}; least {', '.join(best[-_SHOWN:])}."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
