"""Flags, commands and recipes of earlier versions, each with what to do instead."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import pairwise

_DIGITS = "digit systems have their own command, `python -m digits.train --recipe {value}`"

REMOVED: dict[str, str] = {
    "training.* --recipe digits_*": _DIGITS,
    "training.* --recipe stn_*": _DIGITS,
    "training.* --recipe ram_*": _DIGITS,
    "training.* --recipe dram_*": _DIGITS,
    "training.* --recipe mask_*": _DIGITS,
    "training.* --recipe cnn_*": _DIGITS,
    "training.* --recipe convnet_*": _DIGITS,
    "training.* --recipe *_cluttered": _DIGITS,
    "sat-tf explain": 'type `sat-tf caption PHOTO --sentence "a dog runs"`',
    "sat-tf litert": "type `sat-tf caption PHOTO --run-dir FOLDER`, also of a folder of graphs",
    "sat_tf.inference.caption --inference": "`sat-tf evaluate --inference {value}` scores it",
    "sat_tf.inference.caption --figure webp": "take png or jpg, or `--html FILE`, a page with the "
    "maps of each word",
    "training.publish --check": "score OUT and the run by `training.evaluate`",
    "--decoder.attention-previous-word": "attention reads h[t-1] alone, as in the paper",
    "--decoder.output-previous-word": "the deep output reads the previous word",
    "--decoder.output-context": "the deep output reads the context",
    "--decoder.output-tanh": "the deep output has a tanh",
    "--attention.baseline learned": "take `--attention.preset rloo`",
    "--search.min-length": "captions have at least one word",
    "--min-length": "captions have at least one word",
    "--encoder.name keras_hub:siglip*": "take keras_hub:dinov2_small or a CLIP encoder",
    "--data.segmenter": "split the captions yourself and take `--data.tokens words`",
    "--data.tokens subwords": "take words, or characters in languages without spaces",
    "--data.capitals": "captions are in small letters",
    "--score-tokens icu": "take characters, zh or ja-mecab",
    "--score-tokens jieba": "take characters or zh",
    "--score-tokens mecab": "take ja-mecab",
    "sat-tf locate": "teach attention by boxes, `--attention.teacher BOXES`; the locator is at "
    "commit 8563600a",
    "--attention.teacher *.npz": "the word locator is at commit 8563600a; give boxes instead",
    "serving.client --resize": "the client asks the server for it",
    "serving.client --limits": "they are told whenever the server sends them",
    "serving.web --server": "caption by a server with `python -m serving.client`",
    "serving.web --model": "name captioners with `--run-dir`",
    "serving.web --host": "the page is for this machine; others get `serving.export_web`'s",
    "serving.web --allow-host": "the page is for this machine; others get `serving.export_web`'s",
    "serving.web --export": "name its folder with `--run-dir`",
    "sat-tf export": "use `sat-tf export-saved-model`, `export-litert` or `export-web`; a digit "
    "run becomes a LiteRT graph by `python -m digits.publish RUN OUT`",
    "--boxes *.json": "write COCO's instances as JSON lines, see docs/maps.md",
    "--attention.teacher *.json": "write COCO's instances as JSON lines, see docs/maps.md",
    "training.compare --score-tokens": "evaluate all runs with it",
    "training.average --beam": "give it to `training.evaluate` and to exports",
    "training.average --length-power": "give it to `training.evaluate` and to exports",
    "training.average --consensus": "give it to `training.evaluate` and to exports",
    "sat-tf extract": "train: `training.train` fills the feature store itself",
    "serving.export_web --precision": "the page takes the captioner's own graphs; make others "
    "with `serving.export_litert --precision {value}`",
    "serving.export_web --beam": "the page takes the captioner's own graphs; make others with "
    "`serving.export_litert --beam {value}`",
    "serving.export_web --inference": "the page takes the captioner's own graphs; make others "
    "with `serving.export_litert --inference {value}`",
    "serving.bulk --export": "name a run or a published captioner with `--run-dir`",
    "serving.bulk --format": "captions are written as Parquet",
    "serving.bulk --batch-size": "Spark divides the images itself",
    "serving.bulk --chunk-size": "Spark divides the images itself",
    "digits.train --recipe *_paper": "give the paper's sizes as flags, see `--help`",
    "digits.train --recipe mask_cluttered": "take `stn_cluttered`; the mask is at commit 8563600a",
    "digits.* --model.attention mask": "leave it out; the mask is at commit 8563600a",
    "digits.* --model.attention mean": "take `soft` or `hard`; others are at commit 8563600a",
    "digits.* --model.attention max": "take `soft` or `hard`; others are at commit 8563600a",
    "digits.* --model.attention sum": "take `soft` or `hard`; others are at commit 8563600a",
    "digits.* --model.attention gap": "take `soft` or `hard`; others are at commit 8563600a",
    "digits.train --recipe cnn_cluttered": "take `stn_cluttered`; it is at commit 8563600a",
    "digits.train --recipe ram_digit": "take `dram_digit`; it is at commit 8563600a",
    "digits.train --recipe ram_pairs": "take `dram_pairs`; it is at commit 8563600a",
    "digits.train --recipe *_addition": "take `dram_pairs`; sums are at commit 8563600a",
    "digits.* --data.target": "digits are read as a pair; sums are at commit 8563600a",
    "digits.* --model.attention none": "leave it out; others are at commit 8563600a",
    "digits.* --model.core": "RAM has the paper's core; the LSTM is at commit 8563600a",
    "digits.* --model.first-location centre": "take `random` or `learned`",
    "digits.* --model.locations": "the policy chooses them; others are at commit 8563600a",
    "digits.evaluate --model.*": "a run is evaluated as it was trained",
    "digits.publish --check": "`digits.evaluate` scores the run",
    "digits.publish --data-dir": "publishing reads no digits",
    "digits.publish --split": "publishing reads no digits",
    "digits.publish --licence": "edit the card, README.md in OUT",
}
"""Removed name -> what to do instead, a clause without a full stop; `{value}` is the value given.

Keys are flags (`--data.image-dir`, with dashes), flags with a value (`--data.tokens x`), each
of all commands or of one (`serving.export --all`), and commands (`sat-tf locate`). `*` matches
anything.
"""


def removed_flag(argv: Sequence[str], module: str) -> str | None:
    """Returns a sentence about the first removed flag of a command line; None without one.

    Args:
        argv: The command line, without the command.
        module: The command's module, such as "training.train".
    """
    for word, following in pairwise([*argv, ""]):
        flag, equals, value = word.partition("=")
        if not flag.startswith("--"):
            continue
        flag, value = flag.replace("_", "-"), value if equals else following
        for name in (flag, f"{flag} {value}"):
            for pattern, instead in REMOVED.items():
                if fnmatchcase(name, pattern) or fnmatchcase(f"{module} {name}", pattern):
                    return f"`{name}` was removed: {instead.replace('{value}', value)}."
    return None


def removed_command(name: str) -> str | None:
    """Returns a sentence about a removed command of `sat-tf`; None if there was none."""
    instead = REMOVED.get(f"sat-tf {name}")
    return f"`sat-tf {name}` was removed: {instead}." if instead else None
