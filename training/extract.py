"""Fill the feature stores of a recipe on Spark: `python -m training.extract --recipe ...`."""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from pathlib import Path

from sat_tf.layers.encoder_names import check_encoder
from sat_tf.spark import check_spark, open_session
from sat_tf.util.commands import exit_status, loading
from sat_tf.util.errors import invalid_value
from sat_tf.util.files import default_cache_dir
from training.run.decide import Settings, check_data_dir, parse_settings
from training.run.init_from import check_init_from


@dataclass(frozen=True)
class Arguments:
    """Fill the feature stores that training with these settings reads."""

    config: Settings
    """The recipe's settings, those of the training."""
    data_dir: Path | None = None
    """Your copy of the data set, in a folder that all workers see."""
    cache_dir: Path | None = None
    """Feature stores, in a folder that all workers see; $SAT_TF_CACHE, $XDG_CACHE_HOME/sat_tf or
    ~/.cache/sat_tf by default."""
    master: str | None = None
    """Spark's master, such as local[2] or spark://HOST:7077; that of spark-submit by default, or
    all cores of this machine."""


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    given = sys.argv[1:] if argv is None else argv
    purpose = "Fill the feature stores of a recipe on Spark."
    return exit_status(lambda: run(parse_settings(Arguments, given, "training.extract", purpose)))


def check(arguments: Arguments) -> None:
    """Checks the arguments before TensorFlow and Spark, which take seconds, are loaded.

    Raises:
        ValueError: Training with these settings reads no store, or an argument is invalid.
        OSError: Spark or Java is missing.
    """
    config = arguments.config
    if config.encoder.trainable:
        expected = "False: a trained encoder has no feature store"
        raise invalid_value("--encoder.trainable", expected, True, "key")
    if config.fit.precision == "auto":
        expected = "float32 or bfloat16, that of the training: a store holds the encoder's outputs"
        raise invalid_value("--fit.precision", expected, "auto", "key")
    check_encoder(config.encoder)
    check_data_dir(config, arguments.data_dir)
    check_init_from(config)
    check_spark()


def run(arguments: Arguments) -> None:
    """Computes the annotations of the training and dev images that are missing."""
    check(arguments)
    config = arguments.config
    with loading():
        import keras

        from training.data.feature_store import FeatureStore, write_on_spark
        from training.inputs import load_data
        from training.run.build import origin_of
        from training.run.model import first_model

    cache_dir = (arguments.cache_dir or default_cache_dir()).absolute()
    data_dir = arguments.data_dir and arguments.data_dir.absolute()
    # As training does, so that an encoder of random weights is the same.
    keras.utils.set_random_seed(config.seed)
    data = load_data(config.data, data_dir)
    model = first_model(config.captioner, config.fit.precision, data, origin_of(config))
    spark = open_session("sat_tf feature extraction", arguments.master)
    try:
        for split, mirrored in ((data.train, config.data.mirror), (data.dev, False)):
            store = FeatureStore.open(
                cache_dir,
                model.encoder,
                split.examples,
                resize=config.encoder.resize,
                mirrored=mirrored,
                write=functools.partial(write_on_spark, spark),
            )
            skipped = f", {len(store.skipped)} of them unreadable" if store.skipped else ""
            print(f"{split.name}: {len(store)} images{skipped}, in {store.path}")
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())
