"""Publish a run's model in small, plain files: `python -m training.publish RUN OUT`."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from sat_tf import published
from sat_tf.commands import exit_status, loading, program
from sat_tf.config import JOIN, weights_files
from sat_tf.errors import invalid_value
from sat_tf.fields import to_dict
from sat_tf.files import default_cache_dir, write_atomically
from sat_tf.run_folder import RunFolder
from training import digits
from training.config import RunConfig, read_run_config
from training.published_card import comparison_sentence, make_card

if TYPE_CHECKING:
    from sat_tf.runs import TrainedCaptioner
    from training.data.examples import Split

# An encoder can be rounded before its decoder is trained (training.standardize --compact). The
# rounding of a decoder comes after training and is felt in its captions: it is the finer one.
_BITS = {"encoder": 8, "decoder": 10}

METRICS = ("bleu_4", "meteor", "cider")
"""Scores that `--check` compares."""


@dataclass(frozen=True)
class Arguments:
    """Write a run's model as a folder that `sat_tf.load` reads: small weights and a card."""

    run: tyro.conf.Positional[Path]
    """The run, finished and evaluated."""
    out: tyro.conf.Positional[Path]
    """The model's folder: new, empty, or a published model to replace; its name is the model's."""
    share_encoder: bool = False
    """Write the encoder beside OUT, where captioners with the same one share it."""
    licence: str | None = None
    """Terms of use of the weights, for the card; the data set's by default."""
    check: bool = False
    """Score a split by the run and by the published files, and compare."""
    data_dir: Path | None = None
    """Your copy of the data set, for --check; the one that the run was trained on by default."""
    split: str = "dev"
    """Split of --check: train, dev or test."""
    cache_dir: Path | None = None
    """Feature stores; $SAT_TF_CACHE, $XDG_CACHE_HOME/sat_tf or ~/.cache/sat_tf by default."""


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    arguments = tyro.cli(Arguments, args=argv, prog=program("training.publish"))
    return exit_status(lambda: run(arguments))


def run(arguments: Arguments) -> None:
    """Publishes the run, compares if asked, writes the card."""
    check_out(arguments.out)
    is_digits = digits.is_digit_run(arguments.run)
    publish = digits.command("publish").publish if is_digits else _publish_captioner
    write_atomically(arguments.out / published.CARD, publish(arguments))
    _print_notes(arguments.run)
    print(f"Published {arguments.run} as {arguments.out}; read its card: {published.CARD}")


def check_out(out: Path) -> None:
    """Checks that publishing replaces no files but those of an earlier publication.

    Raises:
        ValueError: OUT has other files; hidden ones, such as those of git, do not count.
    """
    if published.is_published(out) or not out.exists():
        return
    expected = "a folder that is new, empty or a published model"
    if not out.is_dir():
        raise invalid_value("out", expected, f"{out}, which is a file")
    if found := sorted(path.name for path in out.iterdir() if not path.name.startswith(".")):
        raise invalid_value("out", expected, f"{out}, which has {found[0]}")


def _print_notes(run_dir: Path) -> None:
    from training.run_state.checkpoints import unfinished_note

    folder = published.locate(run_dir)
    for note in unfinished_note(folder):
        print(f"Note: {note}")


def _publish_captioner(arguments: Arguments) -> str:
    """Writes a captioner's files; returns the card."""
    config = read_run_config(arguments.run)
    with loading():
        from sat_tf.runs import load_captioner
        from training.tasks.captioning.teachers import teachers_of

    captioner = load_captioner(arguments.run)
    # Before anything is written: the data may be missing.
    split = _load_split(arguments, config) if arguments.check else None
    files = packed_files(captioner, config, RunFolder(arguments.run).vocabulary)
    _write(arguments, files, dataclasses.asdict(teachers_of(arguments.run)))
    check = ""
    if split is not None:
        cache_dir = arguments.cache_dir or default_cache_dir()
        check = compare(captioner, load_captioner(arguments.out), config, split, cache_dir)
        print(check)
    name, licence = arguments.out.name, arguments.licence
    return make_card(arguments.run, config, name, licence, check, captioner.weights_sha256)


def _write(
    arguments: Arguments,
    contents: Mapping[str, bytes],
    teachers: Mapping[str, Sequence[str]] | None = None,
) -> None:
    published.write(arguments.out, contents, arguments.share_encoder, teachers)
    for name, content in contents.items():
        print(f"{len(content) / 1e6:7.2f} MB  {name}")


def packed_files(
    captioner: TrainedCaptioner, config: RunConfig, vocabulary: Path
) -> dict[str, bytes]:
    """Returns the content of each file of a published captioner.

    Args:
        captioner: The captioner of the run.
        config: The run's configuration; of paths in it, the names are kept.
        vocabulary: The run's vocabulary file.
    """
    from sat_tf.compact_weights import pack
    from sat_tf.weights import weight_arrays

    weights = JOIN.join(Path(file).name for file in weights_files(config.encoder.weights)) or None
    origin = config.init_from and published.bare_name(config.init_from)
    encoder = dataclasses.replace(config.encoder, weights=weights)
    config = dataclasses.replace(config.without_files(), encoder=encoder, init_from=origin)
    arrays = weight_arrays(captioner.model)
    return {
        published.CONFIG: (json.dumps(to_dict(config), indent=1) + "\n").encode(),
        published.VOCABULARY: vocabulary.read_bytes(),
        **{
            file: pack({k: v for k, v in arrays.items() if k.startswith(f"{part}/")}, _BITS[part])
            for part, file in published.WEIGHTS.items()
        },
    }


def _load_split(arguments: Arguments, config: RunConfig) -> Split:
    from training.data.sources import load_split
    from training.run_state.ownership import read_data_dir

    data_dir = arguments.data_dir or read_data_dir(RunFolder(arguments.run))
    return load_split(config.data, arguments.split, data_dir)


def compare(
    full: TrainedCaptioner,
    compact: TrainedCaptioner,
    config: RunConfig,
    split: Split,
    cache_dir: Path,
) -> str:
    """Captions a split with both captioners; returns a sentence on how much they differ."""
    from training.data.input_source import open_input_source
    from training.evaluate.evaluation import caption_split

    resize = config.encoder.resize
    captions, scores = [], []
    for captioner in (full, compact):
        source = open_input_source(captioner.model.encoder, resize, split, cache_dir)
        found = caption_split(captioner, split, source, config.search)
        captions.append({image_id: caption.text for image_id, caption in found.items()})
        scores.append(_scores(captions[-1], split, config))
    before, after = captions
    equal = sum(after[image_id] == text for image_id, text in before.items()) / len(before)
    differences = {m: scores[1][m] - scores[0][m] for m in METRICS if m in scores[0]}
    differences = {m: change for m, change in differences.items() if math.isfinite(change)}
    return comparison_sentence(equal, len(before), differences)


def _scores(texts: Mapping[str, str], split: Split, config: RunConfig) -> Mapping[str, float]:
    from training.metrics.captions import score_captions

    language, unit = config.data.language, config.data.tokens
    references = split.references(of=texts)
    return score_captions(texts, references, language=language, unit=unit).scores


if __name__ == "__main__":
    sys.exit(main())
