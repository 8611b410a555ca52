"""The configuration of a run, decided once: what flags, recipe and earlier runs leave open."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from pathlib import Path

from sat_tf.config import weights_files
from sat_tf.inference.run_folder import RunFolder
from sat_tf.util.commands import loading
from sat_tf.util.errors import invalid_value
from training.data.dataset import read_data_dir
from training.run.config import RunConfig, check_available, read_run_config
from training.run.decide import check_data_dir, check_optimizer
from training.run.recipes import RECIPES


def check(config: RunConfig, strategy: str) -> None:
    """Checks what flags say together, before anything is read.

    Raises:
        ValueError: The message names the key.
    """
    check_optimizer(config.optimizer, RECIPES[config.recipe].optimizer)
    check_available(config)
    if strategy == "multi_worker" and config.fit.precision == "auto":
        expected = "float32 or bfloat16 with `--strategy multi_worker`"
        raise invalid_value("--fit.precision", expected, "auto", "key")
    if strategy == "multi_worker" and config.fit.jit_compile:
        expected = "False with `--strategy multi_worker`"
        raise invalid_value("--fit.jit_compile", expected, True, "key")


def resolve(config: RunConfig, run_dir: Path, data_dir: Path | None) -> RunConfig:
    """Decides what a checked configuration leaves open, before data is read.

    Raises:
        ValueError: There is no such data folder, or no run of `--init-from`.
    """
    check_data_dir(config, data_dir)
    config = settled(config, run_dir, data_dir)
    begun = RunFolder(run_dir).has_checkpoint()  # its files may be gone
    for file in (
        () if begun or config.init_from is not None else weights_files(config.encoder.weights)
    ):
        if file not in ("imagenet", "none") and not Path(file).is_file():
            got = f"{file}, which does not exist"
            raise invalid_value("--encoder.weights", "imagenet or a weights file", got, "key")
    # One of several workers does not know if it resumes; the chief does.
    if config.init_from is not None and not os.environ.get("TF_CONFIG"):
        from training.run.init_from import check_init_from

        check_init_from(config, run_dir)
    if config.fit.precision == "auto":
        with loading():
            from training.run.precision import faster_precision

        fit = dataclasses.replace(config.fit, precision=faster_precision())
        config = dataclasses.replace(config, fit=fit)
    return config


def settled(config: RunConfig, run_dir: Path | None, data_dir: Path | None) -> RunConfig:
    """Decides what a configuration leaves open: as the run in the folder did, if there is one.

    Without one, as the run did that it starts from, if that learned from the same folder: its
    training images must not become dev or test images, nor its captions be split otherwise.
    A precision `auto` is left open then, as it is measured.
    """
    for folder in map(RunFolder, filter(None, (run_dir, config.init_from))):
        recorded_dir = None if data_dir is None else read_data_dir(folder)
        same = recorded_dir is not None and recorded_dir.samefile(data_dir)
        if folder.config.is_file() and (folder.path == run_dir or same):
            with contextlib.suppress(ValueError):  # `check_run_dir` says what is wrong with it
                recorded = read_run_config(folder.path)
                config = config.split_at(recorded.data.held_out)
                if folder.path == run_dir and config.fit.precision == "auto":
                    fit = dataclasses.replace(config.fit, precision=recorded.fit.precision)
                    config = dataclasses.replace(config, fit=fit)
    return config
