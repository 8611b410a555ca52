"""Inspects data before training: `python -m training.inspect --data-dir DIR`.

Counts what training would use, names everything that it would not, and writes a page of twelve
images with their captions.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sat_tf.config import weights_files
from sat_tf.inference.run_folder import RunFolder, read_object
from sat_tf.layers.encoder_names import WITHOUT_NETWORK, check_encoder
from sat_tf.text.detokenize import primary
from sat_tf.text.vocabulary import SPECIAL_TOKENS, UNK
from sat_tf.util.commands import (
    check_folder,
    command_line,
    counted,
    exit_status,
    loading,
    printable,
    progress_bar,
    run_process,
    text_table,
)
from sat_tf.util.fields import flat, to_dict
from sat_tf.util.files import as_utf8, default_cache_dir, write_json
from training.data.dataset import read_split, recorded_data
from training.data.examples import NO_FILE, SPLITS, DataError, Split, line_of
from training.data.readers import Source
from training.data.readers.folder import unread_files
from training.run.config import RunConfig
from training.run.decide import (
    Settings,
    check_apart,
    check_data_dir,
    check_init_from,
    parse_settings,
)
from training.run.recipes import NEW_WORDS, RECIPES

REPORT_FILE, PAGE = "inspect.json", "index.html"
LEARN_ON = "folder_from_flickr8k"
"""Recipe that fine-tunes a pretrained captioner."""
SOME, FEW = 1500, 60
"""Training images that are few for new weights (experiments/TRIALS.md), and to fine-tune on."""
TRAINED_WITH = ("train", "dev")  # splits that training cannot do without
_NAMED = 5  # skipped images per split, on the console
_FEW_DEV = 50  # images of dev: with fewer, one image moves a score by whole points
_MANY = 0.05
_LARGE_UNKNOWN = 0.1
_BATCH = 8


@dataclass(frozen=True)
class Arguments:
    """Inspect data before training; takes all configuration keys of training.train."""

    config: Settings
    """The recipe's settings."""
    data_dir: Path | None = None
    """Your copy of the data set; not needed for drawn data."""
    out: Path | None = None
    """Output folder of inspect.json and the page; runs/inspection/RECIPE by default."""


def main(argv: list[str] | None = None) -> int:
    """Runs the command.

    Returns:
        0 if training can start on this data, 1 if not, 2 if the command is wrong, 130 if
        interrupted.
    """
    given = sys.argv[1:] if argv is None else argv
    return exit_status(lambda: run(parse(given)))


def parse(argv: list[str]) -> Arguments:
    """Parses the command line."""
    return parse_settings(Arguments, argv, "training.inspect", "Inspect data before training.")


def run(arguments: Arguments) -> int:
    """Surveys the data, and prints and writes the results."""
    config, data_dir = arguments.config, arguments.data_dir
    out = arguments.out or Path("runs") / "inspection" / config.recipe
    check_apart("--out", out, data_dir)
    check_data_dir(config, data_dir)
    check_encoder(config.encoder)
    check_folder("--out", out)
    with loading():  # TensorFlow takes seconds: wrong flags were reported first
        from training.data.contact_sheet import write_contact_sheet
    found = survey(config, data_dir)
    report = found.report
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / REPORT_FILE, report)
    for line in lines_of(report, out):
        print(printable(line))
    if "train" in found.splits:
        title = f"{report['recipe']}: {report['data']} before training"
        told = sentences_of(report), table_of(report)
        split, language = found.splits["train"], config.data.language
        write_contact_sheet(out / PAGE, split, language, title, *told)
        print(f"Page of images with their captions: {out / PAGE}")
    return 0 if report["trainable"] else 1


@dataclass(eq=False)
class Survey:
    """The content of `inspect.json`, the splits that load, and what keeps one from training."""

    report: dict[str, Any]
    splits: dict[str, Split] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def attempt(self, function: Callable, *arguments: Any) -> Any:
        """Calls a function; if it raises an error of the user's, notes it and returns None."""
        try:
            return function(*arguments)
        except ValueError as error:
            self.errors.append(str(error))


def survey(config: RunConfig, data_dir: Path | None) -> Survey:
    """Inspects the data that a configuration would be trained on.

    Defects do not end it: unusable images are skipped and counted, and what would keep training
    from starting is listed under `errors`.
    """
    from training.data.image_loader import check_readable

    found = Survey({"recipe": config.recipe, "data": config.data.name})
    report, splits = found.report, found.splits
    report["unread"], untested = _load(found, config, data_dir)
    report["splits"], skipped = {}, {}
    for name, split in splits.items():
        report["splits"][name], skipped[name] = image_figures(split, config)
        if name in TRAINED_WITH:
            found.attempt(check_readable, split, skipped[name])
    # With first weights of a run, the encoder's are that run's.
    missing = None if config.init_from else missing_weights(config.encoder.weights)
    found.attempt(check_init_from, config)
    if "train" in splits:
        _add_captions(found, config)
        used = report["splits"]["train"]["used"]
        report["next"] = next_command(used, config, data_dir, bool(missing))
    report["skipped"] = {name: splits[name].unusable(skipped[name]) for name in splits}
    report["uncaptioned"] = list(next(iter(splits.values())).uncaptioned) if splits else []
    read = dict.fromkeys(note for split in splits.values() for note in split.notes)
    report["notes"] = list(map(as_utf8, read))
    report["errors"] = list(dict.fromkeys(map(as_utf8, found.errors)))
    report["trainable"], report["weights"] = not found.errors, not missing
    warnings = [*untested, *warnings_of(report["splits"], config)]
    if "train" in splits:
        warnings.append(on_few_images(used, config))
    if missing:
        warnings.append(f"`--recipe {config.recipe}` cannot start here: {missing}")
    report["warnings"] = list(map(as_utf8, filter(None, warnings)))
    report["configuration"] = to_dict(config)
    return found


def _load(found: Survey, config: RunConfig, data_dir: Path | None) -> tuple[list[str], list[str]]:
    """Loads the splits; returns files that are not read, and sentences on splits without images."""
    source, notes = found.attempt(Source, config.data, data_dir), []
    for name in SPLITS if source else ():
        try:
            found.splits[name] = source.split(name)
        except ValueError as error:
            (found.errors if name in TRAINED_WITH else notes).append(str(error))
    of_folder = source and config.data.name == "folder"
    unread = unread_files(data_dir, source.files) if of_folder else []
    return unread, [f"Nothing to test on: {note}" for note in notes if note not in found.errors]


def image_figures(split: Split, config: RunConfig) -> tuple[dict[str, Any], dict[int, str]]:
    """Decodes every image of a split; returns counts, and index -> reason of unreadable ones."""
    from training.data.image_loader import ImageLoader

    loader = ImageLoader(split.examples, config.encoder.image_size, config.encoder.resize)
    with progress_bar(len(split), f"Images of {split.name}", "images") as bar:
        for _, valid in loader.batches(range(len(split)), _BATCH):
            bar.update(len(valid))
    skipped = dict(sorted(loader.skipped.items()))
    without = sum(reason.startswith(NO_FILE) for _, reason in split.skipped)
    return {
        "listed": len(split) + len(split.skipped),
        "used": len(split) - len(skipped),
        "no_file": without,
        "no_captions": len(split.skipped) - without,
        "unreadable": len(skipped),
        "rotated": len(loader.rotated),
    }, skipped


def _add_captions(found: Survey, config: RunConfig) -> None:
    """Adds the vocabulary and the figures of captions, and what would end training."""
    from training.data.captions import check_vocabulary, learn_vocabulary, split_captions
    from training.run.build import kept_words_of

    words = {name: split_captions(config.data, split) for name, split in found.splits.items()}
    own = learn_vocabulary(config.data, words["train"])
    vocabulary = own.with_more(found.attempt(kept_words_of, config) or {})
    size, kept = len(own) - len(SPECIAL_TOKENS), len(vocabulary) - len(own)
    found.report["vocabulary"] = {"unit": own.unit, "size": size, "kept": kept}
    for name, one in words.items():
        figures = caption_figures(one, vocabulary, config.data.max_length)
        found.report["splits"][name] |= figures
        if name in TRAINED_WITH:
            found.attempt(one.table, vocabulary)
    found.attempt(check_vocabulary, config.data, vocabulary)


def caption_figures(words: Any, vocabulary: Any, max_length: int) -> dict[str, Any]:
    """Counts captions and measures them in words or characters, as training sees them."""
    split, ids = words.split, words.ids(vocabulary)
    counts = np.array([len(example.captions) for example in split.examples])
    spoken = ids.lengths[ids.lengths > 0]
    return {
        "captions": len(ids),
        "captions_per_image": _distribution(counts),
        "without_words": len(ids) - len(spoken),
        "length": _distribution(spoken),
        "cut": int(np.count_nonzero(spoken > max_length)),
        "unknown_share": np.count_nonzero(ids.flat == UNK) / max(ids.flat.size, 1),
    }


def _distribution(values: np.ndarray) -> dict[str, float]:
    """Minimum, median and maximum; zeros without values."""
    quantiles = np.quantile(values if values.size else np.zeros(1), (0, 0.5, 1))
    return dict(zip(("min", "median", "max"), quantiles.tolist(), strict=True))


def missing_weights(weights: str | None) -> str | None:
    """Returns sentences if a file of weights is not there: data can be checked without any."""
    files = weights_files(weights)
    lost = [f for f in files if f.lower() not in ("imagenet", "none") and not Path(f).is_file()]
    return f"There is no file {' or '.join(lost)}. {WITHOUT_NETWORK}" if lost else None


def warnings_of(splits: dict[str, dict[str, Any]], config: RunConfig) -> Iterator[str]:
    """Yields sentences on what to mend first."""
    for name, split in splits.items():
        total = counted(split["listed"], "image")
        if lost := split["listed"] - split["used"]:
            yield f"{lost} of {total} of {name} skipped; see `skipped` in {REPORT_FILE}."
        if split["no_file"] >= max(split["listed"] / 2, 1):
            yield (
                f"{split['no_file']} of {total} of {name} have no file: name the folder of the "
                "images with `--data.image-dir`."
            )
        if "captions" not in split:
            continue
        if split["cut"] > _MANY * split["captions"]:
            limit = f"{config.data.max_length} {config.data.unit}"
            longer = "`--data.max-length` and `--search.max-length` allow longer ones"
            yield f"{counted(split['cut'], 'caption')} of {name} cut to {limit}: {longer}."
        if split["unknown_share"] > _LARGE_UNKNOWN:
            lower = "lower `--data.min-count`, or add captions"
            yield f"{split['unknown_share']:.0%} of the words of {name} are unknown: {lower}."
    dev = splits.get("dev")
    if dev and dev["used"] < _FEW_DEV:
        yield f"dev has {counted(dev['used'], 'image')}: too few to compare epochs."


_ROWS = {
    "images listed": "listed",
    "used": "used",
    "without a file": "no_file",
    "without a caption": "no_captions",
    "unreadable": "unreadable",
    "turned upright (EXIF)": "rotated",
    "captions": "captions",
    "captions per image (min / median / max)": "captions_per_image",
    "words or characters per caption (min / median / max)": "length",
    "captions cut": "cut",
    "captions without a word": "without_words",
    "unknown words or characters": "unknown_share",
}


def table_of(report: dict[str, Any]) -> list[list[str]]:
    """One row per figure and one column per split; the first row is the splits' names."""
    splits = report["splits"]
    rows = [
        [name, *(_cell(split[key]) for split in splits.values())]
        for name, key in _ROWS.items()
        if splits and all(key in split for split in splits.values())
    ]
    return [["", *splits], *rows] if rows else []


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return " / ".join(f"{number:g}" for number in value.values())
    return f"{value:.1%}" if isinstance(value, float) else str("-" if value is None else value)


def sentences_of(report: dict[str, Any]) -> list[str]:
    """Vocabulary, notes, warnings, errors and the next command."""
    found = []
    if words := report.get("vocabulary"):
        kept = f", and {words['kept']:,} kept of `--init-from`" if words["kept"] else ""
        found.append(f"Vocabulary: {words['size']} {words['unit']}{kept}.")
    found += map(line_of, report["notes"])
    found += [f"Warning: {warning}" for warning in report["warnings"]]
    found += [f"Error: {error}" for error in report["errors"]]
    if report["trainable"]:
        ready = "Ready to train." if report["weights"] else "The data is ready."
        found += [ready, f"Next: {report['next']}"]
    return found


def lines_of(report: dict[str, Any], out: Path) -> Iterator[str]:
    """Yields the report as lines, with the first few of the skipped images by name."""
    if rows := table_of(report):
        yield from text_table(rows).split("\n")
    for name, reasons in report["skipped"].items():
        for image, reason in list(reasons.items())[:_NAMED]:
            yield f"Skipped in {name}: {image}: {reason}"
        if len(reasons) > _NAMED:
            yield f"Skipped in {name}: {len(reasons) - _NAMED} more, all in {out / REPORT_FILE}"
    yield from sentences_of(report)


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
        yield "No test image: scores of dev, which training has seen, are the only ones."
    else:
        command = command_line("training.evaluate", "--run-dir", folder, "--split", "test")
        yield f"Next: {command}"


if __name__ == "__main__":
    run_process(main)
