"""The survey of a data set for one configuration: everything that `training.inspect` reports.

Images that are in two splits are found by a difference hash, confirmed on a thumbnail. Both are of
the square that training sees, hardly change if the image is scaled or compressed again, and take
200 bytes an image; its pixels are not kept.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations, islice
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from sat_tf.config import EncoderConfig, weights_files
from sat_tf.layers.encoder_names import WITHOUT_NETWORK
from sat_tf.text.detokenize import primary
from sat_tf.text.vocabulary import SPECIAL_TOKENS, UNK, Vocabulary
from sat_tf.util.commands import progress_bar
from sat_tf.util.fields import flat, to_dict
from sat_tf.util.files import as_utf8
from sat_tf.util.text_tables import counted
from training import little_data
from training.data.captions import (
    Amount,
    CaptionWords,
    check_vocabulary,
    learn_vocabulary,
    split_captions,
)
from training.data.config import DataConfig
from training.data.examples import NO_CAPTIONS, NO_FILE, SPLITS, AnyImage, Split
from training.data.image_loader import ImageLoader, check_readable
from training.data.readers import Source
from training.evaluation.scores import ORDERS, note_on_scores
from training.run.build import kept_words_of
from training.run.config import RunConfig
from training.run.init_from import check_init_from

TRAINED_WITH = ("train", "dev")  # splits that training cannot do without
_FEW_IMAGES = 50  # in dev: with fewer, one image moves a score by whole points
_MANY_CUT = 0.05
_MANY_UNKNOWN = 0.1
_MANY_REPEATED = 0.05
# Scripts without spaces between words.
_UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN", "YI")
_UNSPACED += ("JAVANESE", "BALINESE", "TAI LE", "TAI THAM", "TAI VIET", "NEW TAI LUE")
_SCRIPT = re.compile(r"NEW TAI LUE|TAI \w+|\S+")  # at the start of a letter's Unicode name
_NOTHING = ("nan", "none", "null", "n/a", "#n/a")  # empty cells, as programs write them
_MANY_ALIKE, _FEW_ALIKE = 0.05, 3  # share, and number, of images with one caption
_SIGNS, _SIGN_KINDS = "%\u2030", ("Sm", "Sc", "So")
_WORDS = re.compile(r"\w+")
_NUMBER = re.compile(r"\d+(?:[.,:/]\d+)*")
_MANY_SIGNS = 0.01
_NAMED_SIGNS = 100
_MOST_OUTSIDE = 0.5
_MANY_OUTSIDE = 0.05
_DARK = 32  # grey levels; 12 bits stored in 16 reach 15
_READ, _SHORT = 1_000, 200  # captions, and letters of them, that tell the language
_ALIKE = ({"no", "nb", "nn"}, {"hr", "bs", "sr"}, {"id", "ms"}, {"ku", "sdh"})
_LETTERS = 100_000  # enough to recognise the script
_BATCH = 8
# On photographs, scaling and compression flip up to nine of the 64 bits and change the thumbnail
# by one or two grey levels; another photograph changes it by more than ten.
MOST_BITS = 10
MOST_DIFFERENCE = 6.0
_FLAT = 2  # grey levels; a smaller step is noise of the compression
_THUMBNAIL = 8
_BLOCK = 64  # rows compared at once, so that memory stays small


@dataclass(eq=False)
class Survey:
    """Results of a survey.

    Attributes:
        report: The content of `inspect.json`.
        splits: The splits that can be loaded.
        words: The words of their captions.
        scans: Results of the pass over the images of each of them.
        errors: What would keep training from starting.
    """

    report: dict[str, Any]
    splits: dict[str, Split] = field(default_factory=dict)
    words: dict[str, CaptionWords] = field(default_factory=dict)
    scans: dict[str, ImageScan] = field(default_factory=dict)
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
    report = {"recipe": config.recipe, "data": config.data.name}
    found = Survey(report | {"data_dir": data_dir and as_utf8(str(data_dir))})
    report, splits, scans = found.report, found.splits, found.scans
    notes = _load(found, config.data, data_dir)
    read = dict.fromkeys(note for split in splits.values() for note in split.notes)
    for name, split in splits.items():
        scans[name] = scan_images(split, config.encoder)
        if name in TRAINED_WITH:
            found.attempt(check_readable, split, scans[name].skipped)
    missing = None
    if config.init_from is None:  # else the encoder's weights are those of that run
        missing = found.attempt(missing_weights, config.encoder)
    found.attempt(check_init_from, config)
    report["splits"] = {name: _image_figures(splits[name], scans[name]) for name in splits}
    few: list[str] = []
    if "train" in splits:
        found.words = {n: split_captions(config.data, split) for n, split in splits.items()}
        words = learn_vocabulary(config.data, found.words["train"])
        vocabulary = words.with_more(found.attempt(kept_words_of, config) or ())
        size, kept = len(words) - len(SPECIAL_TOKENS), len(vocabulary) - len(words)
        sizes = {"size": size, "kept": kept, "min_count": config.data.min_count}
        report["vocabulary"] = {"unit": words.unit, **sizes}
        amount = _add_captions(found, config.data, vocabulary)
        if config.data.name == "folder":
            few = list(little_data.sentences(amount, config.data, config.init_from))
        about = config.data, flat(to_dict(config)), data_dir, bool(missing)
        report["next"] = little_data.next_command(amount, *about)
        _add_twins(found)
        _check_captions(found, config.data, vocabulary)
    report["skipped"] = {name: splits[name].unusable(scans[name].skipped) for name in splits}
    report["uncaptioned"] = list(next(iter(splits.values())).uncaptioned) if splits else []
    report["rotated"] = {
        name: [split.examples[index].image_id for index in scans[name].rotated]
        for name, split in splits.items()
    }
    report["errors"] = list(dict.fromkeys(map(as_utf8, found.errors)))
    report["trainable"] = not found.errors
    report["notes"] = list(map(as_utf8, read))
    lacking = [f"`--recipe {config.recipe}` cannot start here: {missing}"] if missing else []
    report["warnings"] = [*map(as_utf8, notes), *warnings_of(report, config.data), *few]
    report["warnings"] += lacking
    report["weights"] = not missing
    report["configuration"] = to_dict(config)
    return found


def _load(found: Survey, data: DataConfig, data_dir: Path | None) -> list[str]:
    """Loads the splits that can be loaded; returns notes on those that training does not need."""
    notes = []
    source = found.attempt(Source, data, data_dir)
    for name in SPLITS if source else ():
        try:
            found.splits[name] = source.split(name)
        except ValueError as error:
            (found.errors if name in TRAINED_WITH else notes).append(str(error))
    return [f"Nothing to test on: {note}" for note in notes if note not in found.errors]


def _image_figures(split: Split, scan: ImageScan) -> dict[str, Any]:
    kinds = Counter(
        NO_FILE if reason.startswith(NO_FILE) else NO_CAPTIONS for _, reason in split.skipped
    )
    outside = _distribution(100 * scan.outside)
    return {
        "listed": len(split) + len(split.skipped),
        "used": len(split) - len(scan.skipped),
        "no_file": kinds[NO_FILE],
        "no_captions": kinds[NO_CAPTIONS],
        "unreadable": len(scan.skipped),
        "rotated": len(scan.rotated),
        "outside": {name: round(percent) for name, percent in outside.items()},
        "mostly_outside": int(np.sum(scan.outside > _MOST_OUTSIDE)),
        "dark": scan.dark,
    }


def _add_captions(found: Survey, data: DataConfig, vocabulary: Vocabulary) -> Amount:
    """Adds caption figures, and the number of captions that an earlier split has too.

    Returns:
        The amount of training data.
    """
    report = found.report
    report["scripts"] = scripts(found.splits["train"].captions)
    report["language"] = found_language(found.splits["train"].captions, data.language)
    earlier: set[str] = set()
    amount, alike, written = None, Counter(), {}
    for name, split in found.splits.items():
        words = found.words[name]
        spoken = spoken_captions(words)
        report["splits"][name] |= caption_figures(words, vocabulary, data.max_length)
        report["splits"][name]["captions_of_earlier_splits"] = sum(c in earlier for c in spoken)
        earlier.update(spoken)
        used = report["splits"][name]["used"]
        for example in split.examples:
            said = {" ".join(_WORDS.findall(c.lower())): c for c in example.captions}
            alike.update(key for key in said if key)
            written |= said
        amount = amount or Amount.of(used, words.rows)
    if alike:
        caption, count = alike.most_common(1)[0]
        images = sum(map(len, found.splits.values()))
        shared = {"caption": as_utf8(written[caption]), "share": count / images}
        report["commonest_caption"] = shared | {"images": count}
    return amount


def _add_twins(found: Survey) -> None:
    """Adds the images that an earlier split has too."""
    splits, prints = found.splits, {name: scan.prints for name, scan in found.scans.items()}
    twins = []
    for earlier, name in combinations(splits, 2):
        twins += find_twins(splits[name], prints[name], splits[earlier], prints[earlier])
    for name in splits:
        same = {twin.image for twin in twins if twin.split == name}
        found.report["splits"][name]["images_of_earlier_splits"] = len(same)
    found.report["duplicates"] = [dataclasses.asdict(twin) for twin in twins]


def _check_captions(found: Survey, data: DataConfig, vocabulary: Vocabulary) -> None:
    """Notes the errors by which training, or the scoring of dev, would stop."""
    for name in TRAINED_WITH:
        if name in found.words:
            found.attempt(found.words[name].table, vocabulary)
    found.attempt(check_vocabulary, data, vocabulary)


@dataclass(frozen=True, eq=False)
class ImageScan:
    """Results of a pass over the images of a split.

    Attributes:
        skipped: Index -> reason of each image that cannot be decoded.
        rotated: Indices of the images that were turned upright according to their EXIF.
        prints: Fingerprints by which duplicates are found.
        outside: float `[n]`, the share of each readable image outside the square that is kept.
        dark: Number of images that are nearly black.
    """

    skipped: dict[int, str]
    rotated: list[int]
    prints: Prints
    outside: np.ndarray
    dark: int


def scan_images(split: Split, config: EncoderConfig) -> ImageScan:
    """Decodes every image of a split, with a few batches in memory at a time."""
    loader = ImageLoader(split.examples, config.image_size, config.resize)
    everything, prints, index, dark = range(len(split)), Prints.empty(len(split)), 0, 0
    with progress_bar(len(split), f"Images of {split.name}", "images") as bar:
        for pixels, valid in loader.batches(everything, _BATCH):
            for row in np.flatnonzero(valid):
                prints.take(index + int(row), pixels[row])
                dark += bool(pixels[row].max() < _DARK)
            index += len(valid)
            bar.update(len(valid))
    notes = loader.notes(everything)
    skipped = {int(index): reason for index, reason in notes["skipped"].items()}
    seen = [loader.sizes[index] for index in np.flatnonzero(prints.readable)]
    sizes = np.sort(np.reshape(seen, [-1, 2]), axis=1)
    outside = 1 - sizes[:, 0] / sizes[:, 1] if config.resize == "crop" else np.zeros(len(sizes))
    return ImageScan(skipped, notes["rotated"], prints, outside, dark)


def caption_figures(words: CaptionWords, vocabulary: Vocabulary, max_length: int) -> dict[str, Any]:
    """Counts captions and measures them in words (or characters), as training sees them.

    Shares are in [0, 1]; `signs` has the numbers and signs that tokenisation takes apart or drops,
    each with what is left of it.
    """
    split, ids = words.split, words.ids(vocabulary)
    different: list[set[bytes]] = [set() for _ in split.examples]
    for image, row in zip(words.image_index.tolist(), words.rows, strict=True):
        different[image].update([row.tobytes()] if len(row) else [])
    worded = np.bincount(words.image_index[ids.lengths > 0], minlength=len(split))
    repeats = worded - np.fromiter(map(len, different), int, len(split))
    counts = np.array([len(example.captions) for example in split.examples])
    spoken = ids.lengths[ids.lengths > 0]
    signs = lost_signs((c for caption in split.captions for c in caption.split()), vocabulary)
    return {
        "captions": len(ids),
        "captions_per_image": _distribution(counts),
        "blank": split.blank_captions,
        "without_words": len(ids) - len(spoken),
        "repeated": int(repeats.sum()),
        "images_with_repeats": int(np.count_nonzero(repeats)),
        "nothing": sum(c.strip().lower() in _NOTHING for c in split.captions),
        "signs": dict(islice(signs.items(), _NAMED_SIGNS)),
        "with_signs": sum(any(chunk in signs for chunk in c.split()) for c in split.captions),
        "length": _distribution(spoken),
        "cut_share": float(np.mean(spoken > max_length)) if spoken.size else 0.0,
        "unknown_share": np.count_nonzero(ids.flat == UNK) / max(ids.flat.size, 1),
    }


def lost_signs(chunks: Iterable[str], vocabulary: Vocabulary) -> dict[str, str]:
    """Finds numbers and signs that tokenisation takes apart or drops: {"3/5": "3 5", "%": ""}."""
    found = {}
    for chunk in dict.fromkeys(chunks):
        folded = unicodedata.normalize("NFKC", chunk)  # a unit in one sign
        signs = {c for c in folded if c in _SIGNS or unicodedata.category(c) in _SIGN_KINDS}
        if not signs and not any(map(str.isdigit, chunk)):
            continue
        left = vocabulary.join(vocabulary.tokenize(chunk))
        if not signs.issubset(left) or _NUMBER.findall(folded) != _NUMBER.findall(left):
            found[chunk] = left
    return found


def spoken_captions(words: CaptionWords) -> list[str]:
    """The captions in a form that is equal for captions that training cannot tell apart."""
    return ["\0".join(words.words[n] for n in row) for row in words.rows if len(row)]


def scripts(captions: Iterable[str]) -> dict[str, float]:
    """Shares of the scripts among the first letters, the most frequent first: {"LATIN": 0.98}."""
    letters = (char for caption in captions for char in caption if char.isalpha())
    names = (unicodedata.name(letter, "?") for letter in islice(letters, _LETTERS))
    counts = Counter(_SCRIPT.match(name)[0] for name in names)
    return {name: count / counts.total() for name, count in counts.most_common()}


def found_language(captions: Iterable[str], language: str) -> str:
    """Returns the code of the captions' language, by py3langid; that of `language` if in doubt."""
    known = primary(language)
    text = " ".join(islice(captions, _READ))
    if len(text) < _SHORT:
        return known
    import py3langid

    ranked = dict(py3langid.rank(text))
    found = next(iter(ranked))
    alike = any({found, known} <= group for group in _ALIKE)
    if alike or known not in ranked:
        return known
    return "ckb" if found == "sdh" else found  # Sorani, which py3langid has by its neighbour's code


def _distribution(values: np.ndarray) -> dict[str, float]:
    """Minimum, median, 95th percentile and maximum; zeros if there are no values."""
    values = values if values.size else np.zeros(1)
    names, shares = ("min", "median", "p95", "max"), (0, 50, 95, 100)
    return dict(zip(names, np.percentile(values, shares).tolist(), strict=True))


def warnings_of(report: dict[str, Any], config: DataConfig) -> list[str]:
    """Derives warnings from the figures of a report."""
    found = [*_about_images(report)]
    if "vocabulary" in report:
        found += [*_about_captions(report, config), *_about_language(report, config)]
    return found


def _about_images(report: dict[str, Any]) -> Iterator[str]:
    splits = report["splits"].items()
    for name, split in splits:
        total = counted(split["listed"], "image")
        if lost := split["listed"] - split["used"]:
            yield f"{lost} of {total} of {name} skipped; see `skipped` in inspect.json."
        if split["no_file"] >= max(split["listed"] / 2, 1):
            yield (
                f"{split['no_file']} of {total} of {name} have no file: name the folder that their "
                "names start from with `--data.image-dir`, copy the images there, or remove them "
                "from the caption file."
            )
    used = sum(split["used"] for _, split in splits)
    if (most := sum(s["mostly_outside"] for _, s in splits)) > _MANY_OUTSIDE * used:
        worst = max(split["outside"]["max"] for _, split in splits)
        yield (
            f"{counted(most, 'image')} of {used} mostly outside the central square, which alone is "
            f"seen (up to {worst} % is not): `--encoder.resize squash` takes the whole image, out "
            "of proportion."
        )
    if dark := sum(split["dark"] for _, split in splits):
        yield (
            f"{counted(dark, 'image')} nearly black (no value above {_DARK - 1} of 255), as when "
            "10 or 12 bits are stored in 16: save them stretched to the whole range."
        )
    for name, split in splits:
        if copies := split.get("images_of_earlier_splits"):
            yield (
                f"{counted(copies, 'image')} of {name} also in an earlier split, so its scores "
                "will be too good; see `duplicates` in inspect.json."
            )
    dev = report["splits"].get("dev")
    if dev and dev["used"] < _FEW_IMAGES:
        yield f"dev has {counted(dev['used'], 'image')}: too few to compare epochs by their scores."


def _about_captions(report: dict[str, Any], config: DataConfig) -> Iterator[str]:
    train, splits = report["splits"]["train"], report["splits"]
    unit = config.unit
    if train["captions_per_image"]["max"] == 1:
        yield "Every image has a single caption: scores against one reference are low and noisy."
    common = report.get("commonest_caption")
    if common and common["images"] >= _FEW_ALIKE and common["share"] >= _MANY_ALIKE:
        yield (
            f"{common['share']:.0%} of the images share one caption ({common['caption'][:60]!r}): "
            "a captioner learns to write what many images have; remove captions that describe "
            "no image."
        )
    if train["length"]["median"] <= 1:
        yield (
            f"Most captions are one {unit.rstrip('s')} long: are they the words of one caption, or "
            "labels? Write a caption as one text."
        )
    elif train["length"]["p95"] < ORDERS:
        yield (
            f"Nearly all captions have fewer than {ORDERS} {unit}: BLEU-{ORDERS} is "
            "undefined without a match of so many."
        )
    if empty := sum((s["blank"] or 0) + s["without_words"] for s in splits.values()):
        yield f"{counted(empty, 'caption')} without a word, left out of training."
    if nothing := sum(split["nothing"] for split in splits.values()):
        yield (
            f"{counted(nothing, 'caption')} with nothing but nan, none or null, as programs write "
            "empty cells: empty them, or remove their rows."
        )
    with_signs = sum(split["with_signs"] for split in splits.values())
    if with_signs > _MANY_SIGNS * sum(split["captions"] for split in splits.values()):
        signs = [item for split in splits.values() for item in split["signs"].items()][:3]
        shown = ", ".join(f"{sign!r} ({left!r})" for sign, left in dict(signs).items())
        yield (
            f"{counted(with_signs, 'caption')} with numbers or signs that are taken apart or "
            f"dropped, such as {shown}: write them as words where they matter (95 percent)."
        )
    if train["cut_share"] > _MANY_CUT:
        yield (
            f"{train['cut_share']:.0%} of the training captions are cut to {config.max_length} "
            f"{unit}: raise `--data.max_length` and `--search.max_length`."
        )
    for name, split in splits.items():
        if split["images_with_repeats"] > _MANY_REPEATED * split["used"]:
            images = counted(split["images_with_repeats"], "image")
            yield (
                f"{images} of {name} with a caption twice or more: such references count double, "
                "which raises CIDEr and BLEU."
            )
        if split["unknown_share"] > _MANY_UNKNOWN:
            lower = "lower `--data.min_count`, or add captions"
            yield (
                f"{split['unknown_share']:.0%} of the {unit} of {name} are unknown: "
                f"{lower if config.min_count > 1 else 'more captions are what helps'}."
            )


def _about_language(report: dict[str, Any], config: DataConfig) -> Iterator[str]:
    script = next(iter(report["scripts"]), "LATIN")
    if config.unit == "words" and script in _UNSPACED:
        yield (
            f"The captions are written in {script} letters, mostly without spaces between words: "
            "name their language (`--data.language`), or use `--data.tokens characters`."
        )
    if report["language"] != primary(config.language):
        yield (
            f"The captions look like {report['language']}: is `--data.language` really "
            f"{config.language}?"
        )
    if note := note_on_scores(**config.splitting):
        yield note


def missing_weights(config: EncoderConfig) -> str | None:
    """Returns sentences if a file of weights is not there: data can be checked without any."""
    files = weights_files(config.weights)
    lost = [f for f in files if f.lower() not in ("imagenet", "none") and not Path(f).is_file()]
    return f"There is no file {' or '.join(lost)}. {WITHOUT_NETWORK}" if lost else None


@dataclass(frozen=True, eq=False)
class Prints:
    """Fingerprints of the images of a split.

    Attributes:
        hashes: uint64 `[N]`; bit (i, j) is set if column j + 1 is brighter than column j in row i
            of the image scaled to 8 x 9.
        thumbnails: uint8 `[N, 192]`, the image scaled to 8 x 8, in colour.
        readable: bool `[N]`; the other images have no print.
    """

    hashes: np.ndarray
    thumbnails: np.ndarray
    readable: np.ndarray

    @classmethod
    def empty(cls, count: int) -> Prints:
        """Prints of `count` images, none taken yet."""
        return cls(
            np.zeros(count, np.uint64),
            np.zeros([count, _THUMBNAIL * _THUMBNAIL * 3], np.uint8),
            np.zeros(count, bool),
        )

    def take(self, index: int, pixels: np.ndarray) -> None:
        """Takes the print of one image."""
        image = Image.fromarray(np.round(pixels).astype(np.uint8))
        grey = image.convert("L").resize((_THUMBNAIL + 1, _THUMBNAIL), Image.Resampling.BOX)
        slopes = np.diff(np.asarray(grey, np.int16), axis=1) > _FLAT
        self.hashes[index] = np.packbits(slopes).view(np.uint64)[0]
        small = image.resize((_THUMBNAIL, _THUMBNAIL), Image.Resampling.BOX)
        self.thumbnails[index] = np.asarray(small).reshape(-1)
        self.readable[index] = True


@dataclass(frozen=True)
class Twin:
    """An image that another split has too."""

    split: str
    image: str
    other_split: str
    other_image: str
    identical: bool


def find_twins(split: Split, prints: Prints, other: Split, other_prints: Prints) -> list[Twin]:
    """Finds the images of a split that another split has too, each with its nearest twin."""
    # Cached, as images that are all alike, such as blank ones, are candidates repeatedly.
    digest_of = functools.cache(lambda example: _digest(example.image))
    twins = []
    for index, nearest in _candidates(prints, other_prints):
        example, found = split.examples[index], [other.examples[n] for n in nearest]
        digest = digest_of(example)
        same = next((match for match in found if digest_of(match) == digest), None)
        twin = same or found[0]
        twins.append(Twin(split.name, example.image_id, other.name, twin.image_id, bool(same)))
    return twins


def _candidates(prints: Prints, others: Prints) -> Iterator[tuple[int, list[int]]]:
    """Index of each image that has twins, with the indices of the nearest ones."""
    known = np.flatnonzero(others.readable)
    wanted = np.flatnonzero(prints.readable)
    for start in range(0, len(wanted), _BLOCK):
        rows = wanted[start : start + _BLOCK]
        bits = np.bitwise_count(prints.hashes[rows, None] ^ others.hashes[None, known])
        for row, near in zip(rows, bits <= MOST_BITS, strict=True):
            places = known[near]
            moved = others.thumbnails[places].astype(np.int16) - prints.thumbnails[row]
            moved = np.abs(moved).mean(axis=1)
            # Files that are equal byte for byte are always among the nearest.
            if moved.size and moved.min() <= MOST_DIFFERENCE:
                yield int(row), places[moved == moved.min()].tolist()


def _digest(image: AnyImage) -> bytes:
    """SHA-256 of an encoded image, or of the pixels of a drawn one."""
    if isinstance(image, np.ndarray):
        return hashlib.sha256(image.tobytes()).digest()
    return hashlib.sha256(image.read_bytes()).digest()
