"""Inspects data before training: `python -m training.inspect --data-dir DIR`.

Counts what training would use, names everything that it would not, and writes a page of twelve
images with their captions.
"""

from __future__ import annotations

import dataclasses
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sat_tf.text.detokenize import primary
from sat_tf.util.commands import check_folder, exit_status, loading, printable, run_process
from sat_tf.util.text_tables import counted, text_table
from training.run.decide import Settings, check_apart, check_data_dir, parse_settings, settled

if TYPE_CHECKING:
    import numpy as np

    from training.data.examples import Split
    from training.run.config import RunConfig

REPORT_FILE, PAGE = "inspect.json", "index.html"
TRAINED_WITH = ("train", "dev")  # splits that training cannot do without
_NAMED = 5  # skipped images per split, on the console
_FEW = 50  # images of dev: with fewer, one image moves a score by whole points
_MANY = 0.05
_LARGE_UNKNOWN = 0.1
_BATCH = 8
# Frequent words, and scripts, by which the language of captions is told.
_WORDS = {
    "en": "a the on is with of and in are",
    "de": "ein eine der die das und auf mit im ist einem einer",
    "fr": "un une le la les des et dans sur avec est du",
    "es": "un una el la los las y en con de",
    "it": "un una il la di con e che su in",
    "pt": "um uma o a os de e em com no na",
    "nl": "een de het en op met in van zijn",
}
_SCRIPTS = {"CJK": "zh", "HANGUL": "ko", "CYRILLIC": "ru", "THAI": "th", "ARABIC": "ar"}
_SCRIPTS |= {"DEVANAGARI": "hi", "HEBREW": "he", "GREEK": "el"}
_READ = 1000  # captions


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
    from sat_tf.layers.encoder_names import check_encoder

    config, data_dir = arguments.config, arguments.data_dir
    out = arguments.out or Path("runs") / "inspection" / config.recipe
    check_apart("--out", out, data_dir)
    check_data_dir(config, data_dir)
    check_encoder(config.encoder)
    check_folder("--out", out)
    with loading():  # TensorFlow takes seconds: wrong flags were reported first
        from sat_tf.util.files import write_json
        from training.data.contact_sheet import write_contact_sheet
    found = survey(settled(config, None, data_dir), data_dir)
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
    """Results of a survey.

    Attributes:
        report: The content of `inspect.json`.
        splits: The splits that can be loaded.
        errors: What would keep training from starting.
    """

    report: dict[str, Any]
    splits: dict[str, Split] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def attempt(self, function: Callable, *arguments: Any) -> Any:
        """Calls a function; if it raises an error of the user's, notes it and returns None."""
        try:
            return function(*arguments)
        except ValueError as error:
            self.errors.append(str(error))
        return None


def survey(config: RunConfig, data_dir: Path | None) -> Survey:
    """Inspects the data that a configuration would be trained on.

    Defects do not end it: unusable images are skipped and counted, and what would keep training
    from starting is listed under `errors`.
    """
    from sat_tf.util.fields import to_dict
    from sat_tf.util.files import as_utf8
    from training.data.image_loader import check_readable
    from training.evaluation.scores import note_on_scores
    from training.run.decide import check_init_from
    from training.run.next_steps import next_command, on_few_images

    found = Survey({"recipe": config.recipe, "data": config.data.name})
    report, splits = found.report, found.splits
    report["unread"], untested = _load(found, config, data_dir)
    skipped: dict[str, dict[int, str]] = {}
    report["splits"] = {}
    for name, split in splits.items():
        report["splits"][name], skipped[name] = image_figures(split, config)
        if name in TRAINED_WITH:
            found.attempt(check_readable, split, skipped[name])
    missing = None
    if config.init_from is None:  # else the encoder's weights are those of that run
        missing = missing_weights(config.encoder.weights)
    found.attempt(check_init_from, config)
    language = None
    if "train" in splits:
        _add_captions(found, config)
        language, spoken = likely_language(splits["train"].captions), config.data
        if language and primary(spoken.language) == "en" != language:
            spoken = dataclasses.replace(spoken, language=language)
        spoken = dataclasses.replace(config, data=spoken)
        used = report["splits"]["train"]["used"]
        report["next"] = next_command(used, spoken, data_dir, bool(missing))
    report["skipped"] = {name: splits[name].unusable(skipped[name]) for name in splits}
    report["uncaptioned"] = list(next(iter(splits.values())).uncaptioned) if splits else []
    read = dict.fromkeys(note for split in splits.values() for note in split.notes)
    report["notes"] = list(map(as_utf8, read))
    report["errors"] = list(dict.fromkeys(map(as_utf8, found.errors)))
    report["trainable"], report["weights"] = not found.errors, not missing
    warnings = [*untested, *warnings_of(report["splits"], config)]
    if "train" in splits and (few := on_few_images(report["splits"]["train"]["used"], config)):
        warnings.append(few)
    if language not in (None, primary(config.data.language)):
        warnings.append(f"The captions look like `--data.language {language}`: add it if they are.")
    if "train" in splits and (note := note_on_scores(**config.data.splitting)):
        warnings.append(note)
    if missing:
        warnings.append(f"`--recipe {config.recipe}` cannot start here: {missing}")
    report["warnings"] = list(map(as_utf8, warnings))
    report["configuration"] = to_dict(config)
    return found


def _load(found: Survey, config: RunConfig, data_dir: Path | None) -> tuple[list[str], list[str]]:
    """Loads the splits; returns files that are not read, and sentences on splits without images."""
    from training.data.examples import SPLITS
    from training.data.readers import Source

    source, notes = found.attempt(Source, config.data, data_dir), []
    for name in SPLITS if source else ():
        try:
            found.splits[name] = source.split(name)
        except ValueError as error:
            (found.errors if name in TRAINED_WITH else notes).append(str(error))
    unread = []
    if source and config.data.name == "folder":
        from training.data.readers.folder import unread_files

        unread = unread_files(data_dir, source.files)
    return unread, [f"Nothing to test on: {note}" for note in notes if note not in found.errors]


def image_figures(split: Split, config: RunConfig) -> tuple[dict[str, Any], dict[int, str]]:
    """Decodes every image of a split; returns counts, and index -> reason of unreadable ones."""
    from sat_tf.util.commands import progress_bar
    from training.data.examples import NO_FILE
    from training.data.image_loader import ImageLoader

    loader = ImageLoader(split.examples, config.encoder.image_size, config.encoder.resize)
    with progress_bar(len(split), f"Images of {split.name}", "images") as bar:
        for _, valid in loader.batches(range(len(split)), _BATCH):
            bar.update(len(valid))
    skipped = dict(sorted(loader.skipped.items()))
    sizes = [size for index, size in loader.sizes.items() if index not in skipped]
    cropped = config.encoder.resize == "crop"
    without = sum(reason.startswith(NO_FILE) for _, reason in split.skipped)
    return {
        "listed": len(split) + len(split.skipped),
        "used": len(split) - len(skipped),
        "no_file": without,
        "no_captions": len(split.skipped) - without,
        "unreadable": len(skipped),
        "rotated": len(loader.rotated),
        "mostly_outside": sum(2 * min(size) < max(size) for size in sizes) if cropped else 0,
    }, skipped


def _add_captions(found: Survey, config: RunConfig) -> None:
    """Adds the vocabulary and the figures of captions, and what would end training."""
    from sat_tf.text.vocabulary import SPECIAL_TOKENS
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
    import numpy as np

    from sat_tf.text.vocabulary import UNK

    split, ids = words.split, words.ids(vocabulary)
    counts = np.array([len(example.captions) for example in split.examples])
    spoken = ids.lengths[ids.lengths > 0]
    alike = Counter(text for example in split.examples for text in {*example.captions})
    return {
        "captions": len(ids),
        "captions_per_image": _distribution(counts),
        "blank": split.blank_captions,
        "without_words": len(ids) - len(spoken),
        "repeated": sum(len(one.captions) - len({*one.captions}) for one in split.examples),
        "commonest": max(alike.values(), default=0),
        "length": _distribution(spoken),
        "cut": int(np.count_nonzero(spoken > max_length)),
        "unknown_share": np.count_nonzero(ids.flat == UNK) / max(ids.flat.size, 1),
    }


def _distribution(values: np.ndarray) -> dict[str, float]:
    """Minimum, median and maximum; zeros if there are no values."""
    import numpy as np

    values = values if values.size else np.zeros(1)
    return {
        "min": float(values.min()),
        "median": float(np.median(values)),
        "max": float(values.max()),
    }


def missing_weights(weights: str | None) -> str | None:
    """Returns sentences if a file of weights is not there: data can be checked without any."""
    from sat_tf.config import weights_files
    from sat_tf.layers.encoder_names import WITHOUT_NETWORK

    files = weights_files(weights)
    lost = [f for f in files if f.lower() not in ("imagenet", "none") and not Path(f).is_file()]
    return f"There is no file {' or '.join(lost)}. {WITHOUT_NETWORK}" if lost else None


def likely_language(captions: Iterable[str]) -> str | None:
    """Returns the language that captions look like, by their letters and most frequent words."""
    texts = list(islice(captions, _READ))
    letters = (letter for text in texts for letter in text if letter.isalpha())
    scripts = Counter(unicodedata.name(letter, "?").partition(" ")[0] for letter in letters)
    for script, _ in scripts.most_common(1):
        if script != "LATIN":
            return "ja" if scripts["HIRAGANA"] + scripts["KATAKANA"] else _SCRIPTS.get(script)
    words = Counter(word for text in texts for word in text.lower().split())
    scores = {code: sum(words[word] for word in of.split()) for code, of in _WORDS.items()}
    first, second = sorted(scores, key=scores.get, reverse=True)[:2]
    certain = scores[first] > 1.5 * scores[second] and 10 * scores[first] > words.total()
    return first if certain else None


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
        if split["mostly_outside"] > _MANY * split["used"]:
            yield (
                f"{counted(split['mostly_outside'], 'image')} of {name} mostly outside the central "
                "square, which alone is seen: `--encoder.resize squash` takes the whole image."
            )
        if "captions" not in split:
            continue
        if split["cut"] > _MANY * split["captions"]:
            limit = f"{config.data.max_length} {config.data.unit}"
            longer = "`--data.max-length` and `--search.max-length` allow longer ones"
            yield f"{counted(split['cut'], 'caption')} of {name} cut to {limit}: {longer}."
        if split["commonest"] > 2 and split["commonest"] > _MANY * split["used"]:
            yield f"{split['commonest']} images of {name} share one caption."
        if split["repeated"]:
            what = "that their images have already: such references count double"
            yield f"{counted(split['repeated'], 'caption')} of {name} {what}."
        if split["unknown_share"] > _LARGE_UNKNOWN:
            lower = "lower `--data.min-count`, or add captions"
            yield f"{split['unknown_share']:.0%} of the words of {name} are unknown: {lower}."
    dev = splits.get("dev")
    if dev and dev["used"] < _FEW:
        yield f"dev has {counted(dev['used'], 'image')}: too few to compare epochs by their scores."


_ROWS = {
    "images listed": "listed",
    "used": "used",
    "without a file": "no_file",
    "without a caption": "no_captions",
    "unreadable": "unreadable",
    "turned upright (EXIF)": "rotated",
    "mostly outside the central square": "mostly_outside",
    "captions": "captions",
    "captions per image (min / median / max)": "captions_per_image",
    "words or characters per caption (min / median / max)": "length",
    "captions cut": "cut",
    "missing captions": "blank",
    "captions without a word": "without_words",
    "captions that their image has already": "repeated",
    "images with the commonest caption": "commonest",
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
    from training.data.examples import line_of

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


if __name__ == "__main__":
    run_process(main)
