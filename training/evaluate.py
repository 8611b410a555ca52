"""Evaluate a run: `python -m training.evaluate --run-dir RUN --data-dir DIR --split dev`.

To score captions from elsewhere, give `--captions FILE --data.name flickr8k` instead of a run.
"""

from __future__ import annotations

import dataclasses
import hashlib
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from sat_tf.config import Inference, SearchFlags
from sat_tf.inference import published
from sat_tf.inference.confidence import FAMILIARITY, limit_files
from sat_tf.inference.run_folder import RunFolder
from sat_tf.scores.meteor_words import function_words
from sat_tf.scores.tokens import ScoreTokens, check_tokens
from sat_tf.util.commands import (
    check_folder,
    counted,
    exit_status,
    loading,
    parse_flags,
    run_process,
)
from sat_tf.util.errors import invalid_value
from sat_tf.util.fields import NonNegativeInt, check_fields, to_dict
from training.data.config import DataSet
from training.data.dataset import read_data_dir
from training.data.examples import canonical_split
from training.data.readers import Source
from training.evaluation.report import (
    CAPTIONS_FILE,
    REPORT_FILE,
    captions_of,
    package_versions,
    parse_captions,
    write_evaluation,
)
from training.evaluation.scores import score_captions
from training.run.config import read_run_config
from training.run.decide import check_apart, peek_flag

UNREADABLE = "cannot be read"
"""Reason why an image has no caption among those from elsewhere."""


@dataclass(frozen=True)
class Arguments:
    """Caption a split and score the captions, or score captions from elsewhere."""

    run_dir: Path | None = None
    """Run folder of `python -m training.train`, or a published captioner's folder or name."""
    captions: Path | None = None
    """Instead of a run: JSON list of `image_id` and `caption`, one per image of the split."""
    data: Annotated[DataSet, tyro.conf.FlagConversionOff] = DataSet()
    """Data set, with --captions; a run knows its own."""
    data_dir: Path | None = None
    """Your copy of the data set; the one that the run was trained on by default."""
    split: str = "dev"
    """Split: train, dev or test."""
    search: Annotated[SearchFlags, tyro.conf.arg(name="")] = SearchFlags()
    inference: Inference | None = None
    """Choice of the location by hard attention; the run's own by default."""
    out: Path | None = None
    """Output folder; evaluation/SPLIT in RUN, or in a folder named like FILE, by default."""
    cache_dir: Path | None = None
    """Feature stores; $SAT_TF_CACHE, $XDG_CACHE_HOME/sat_tf or ~/.cache/sat_tf by default."""
    bound_images: NonNegativeInt | None = None
    """Images for bounds and NWGM gap, hard attention only; 100 by default."""
    score_tokens: ScoreTokens | None = None
    """Tokeniser of the scores, see docs/metrics.md; that of the language by default."""
    figures: NonNegativeInt = 48
    """Images on the page."""
    deletion: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Test by deletion how much each content word depends on where its map is largest, see
    docs/maps.md; half a second per image on two cores."""
    boxes: Path | None = None
    """Boxes of phrases: Flickr30k Entities (folder, for Flickr8k and Flickr30k) or JSON
    lines; see docs/maps.md."""

    def check(self) -> None:
        """Checks what can be checked before TensorFlow is loaded; errors name the flag."""
        check_fields(self)
        check_fields(self.search)
        check_tokens(self.score_tokens)
        self._check_source()
        if self.out is not None:
            check_apart("--out", self.out, self.data_dir)
            check_folder("--out", self.out)
        if self.boxes is not None and not self.boxes.exists():
            got = f"{self.boxes}, which does not exist"
            raise invalid_value("--boxes", "a file or folder of boxes", got)
        if self.captions is not None:
            self._check_captions(self.captions)

    def _check_source(self) -> None:
        """Checks that there is either a run or captions, and no flag of the other."""
        if (self.run_dir is None) == (self.captions is None):
            got = "neither" if self.run_dir is None else "both"
            raise ValueError(f"Expected either `--run-dir RUN` or `--captions FILE`, got {got}.")
        if self.captions is None:
            owner, usual = "--captions", vars(DataSet())
            flags = {f"data.{k}": v for k, v in vars(self.data).items() if v != usual[k]}
        else:
            names = ("inference", "cache_dir", "bound_images", "boxes")
            owner, flags = "--run-dir", {name: getattr(self, name) for name in names}
            flags |= vars(self.search) | {"deletion": self.deletion or None}
            flags["figures"] = None if self.figures == Arguments.figures else self.figures
        for name in (name for name, value in flags.items() if value is not None):
            flag = f"--{name.replace('_', '-')}"
            raise ValueError(f"Received a value for `{flag}`, which goes with `{owner}` only.")

    def _check_captions(self, path: Path) -> None:
        """Checks that the file is there, and that the report replaces neither it nor a run's."""
        if not path.is_file():
            raise FileNotFoundError(f"There is no file {path}; check the path.")
        folder = RunFolder(path.with_suffix(""))
        if self.out is None and folder.config.exists():
            raise ValueError(
                f"`--captions {path}` needs a folder for the report, `--out`: {folder} is a run, "
                "whose own evaluation would be overwritten."
            )
        written = (CAPTIONS_FILE, REPORT_FILE)
        if self.out is not None and path.resolve() in [(self.out / n).resolve() for n in written]:
            expected = "a folder where the report does not replace the file of `--captions`"
            raise invalid_value("--out", expected, str(self.out))


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    given = sys.argv[1:] if argv is None else argv

    def work() -> None:
        arguments = parse(given)
        (run if arguments.captions is None else evaluate_captions)(arguments)

    return exit_status(work)


def parse(argv: list[str]) -> Arguments:
    """Reads and checks the command line."""
    arguments = parse_flags(Arguments, argv, "training.evaluate")
    arguments.check()
    if arguments.captions is not None and peek_flag("--data.name", argv) is None:
        raise ValueError("`--captions` needs the data set they are of: `--data.name`.")
    return dataclasses.replace(arguments, split=canonical_split(arguments.split))


def run(arguments: Arguments) -> None:
    """Captions a split with the run and scores the captions."""
    folder = RunFolder(published.locate(arguments.run_dir))
    config = read_run_config(folder.path)
    kind = config.attention.kind
    if kind != "hard" and arguments.bound_images is not None:
        raise invalid_value("--bound-images", f"none for {kind} attention", arguments.bound_images)
    if arguments.deletion:
        check_deletion(kind, config.data.language, folder.path)
    data_dir = arguments.data_dir or read_data_dir(folder)
    if (out := arguments.out) is None:
        own = RunFolder(published.output_dir(arguments.run_dir))
        check_folder("--run-dir", own.path)
        out = own.evaluation(arguments.split)
    else:
        check_apart("--out", out, data_dir)
    with loading():
        from sat_tf.inference.load import load_captioner
        from training.evaluation.evaluation import evaluate_run

    captioner = load_captioner(folder.path)
    if arguments.inference is not None:
        captioner.set_inference(arguments.inference)
    config = dataclasses.replace(config, search=arguments.search.over(config.search))
    evaluate_run(captioner, config, dataclasses.replace(arguments, out=out, data_dir=data_dir))


def check_deletion(kind: str, language: str, run_dir: Path) -> None:
    """Checks that there are maps to test by deletion, content words, and a mean annotation."""
    if kind == "none":
        raise invalid_value("--deletion", "none without attention", True)
    if language not in ("", "en"):
        expected = "none for captions that are not English, whose function words are not known"
        raise invalid_value("--deletion", expected, language)
    if FAMILIARITY not in limit_files(run_dir):
        expected = "none for a run without the mean of its training images"
        raise invalid_value("--deletion", expected, f"{run_dir}, which has no {FAMILIARITY}")
    function_words()


def evaluate_captions(arguments: Arguments) -> None:
    """Scores a file of captions, without TensorFlow."""
    path, data = arguments.captions, arguments.data
    content = path.read_bytes()
    given = parse_captions(content, path)
    split = Source(data, arguments.data_dir).split(arguments.split)
    captions = captions_of(split, given, path)
    if len(captions) < len(given):
        left = counted(len(given) - len(captions), "caption")
        print(f"Left out: {left} of images that are not scored here.")
    images = enumerate(split.examples)
    unread = {n: UNREADABLE for n, one in images if one.image_id not in captions}
    if unread:
        print(f"Warning: skipped {counted(len(unread), 'image')} that cannot be read.")
    print(f"Scoring {len(captions):,} captions ...", flush=True)
    start, references = time.monotonic(), split.references(of=captions)
    found = score_captions(captions, references, tokens=arguments.score_tokens, **data.splitting)
    report = found.details() | split.details(unread)
    report |= {
        "captions": {"file": path.name, "sha256": hashlib.sha256(content).hexdigest()},
        "data": data.name,
        "configuration": {"data": to_dict(data)},
        "versions": package_versions(),
        "seconds": {"caption metrics": time.monotonic() - start},
    }
    rows = [{"image_id": image_id, "caption": text} for image_id, text in captions.items()]
    heading = f"{path.name} on {len(captions):,} {split.name} images of {data.name}"
    out = arguments.out or RunFolder(path.with_suffix("")).evaluation(split.name)
    write_evaluation(out, heading, report, rows)


if __name__ == "__main__":
    run_process(main)
