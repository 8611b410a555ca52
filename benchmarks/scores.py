"""Scores against the programs in Java that pycocoevalcap brings: equal values, and what they cost.

    python -m benchmarks.scores CAPTIONS.token [--images 1000]

reads `image#n<tab>caption` lines, as Flickr8k's, and scores each image's first caption under the
other four and the next image's under all five. It prints how many tokens and per-image scores
differ, and the processor time of both. The tables are indexed before.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tyro

from sat_tf.scores.meteor_scoring import ENGLISH, Meteor, Tables, meteor_scores
from sat_tf.scores.ptb import PUNCTUATION, split_words


def jar_tokens(lines: Sequence[str]) -> list[str]:
    """Splits texts by Stanford's PTB tokeniser: small letters, without pycocoevalcap's signs."""
    from pycocoevalcap.tokenizer import ptbtokenizer

    jar = Path(ptbtokenizer.__file__).with_name(ptbtokenizer.STANFORD_CORENLP_3_4_1_JAR)
    command = ["java", "-cp", str(jar), "edu.stanford.nlp.process.PTBTokenizer"]
    # A line break inside a caption would shift all after it.
    lines = [" ".join(line.split()) for line in lines]
    answers = _ask([*command, "-preserveLines", "-lowerCase", "-encoding", "UTF-8"], lines)
    return [" ".join(w for w in line.split() if w not in PUNCTUATION) for line in answers]


def jar_statistics(
    captions: Sequence[str], references: Sequence[Sequence[str]], tables: Tables = ENGLISH
) -> np.ndarray:
    """Computes the rows of `Meteor.statistics` by METEOR's own program."""
    from pycocoevalcap.meteor import meteor

    jar = Path(meteor.__file__).with_name(meteor.METEOR_JAR)
    command = ["java", "-Xmx2G", "-Dfile.encoding=UTF-8", "-jar", str(jar), "-", "-", "-stdio"]
    command += ["-l", tables.code, "-m", " ".join(tables.modules)]
    # English is split once more; words of other languages are to be as they come.
    command += ["-norm"] if tables == ENGLISH else []
    pairs = zip(captions, references, strict=True)
    lines = [" ||| ".join(["SCORE", *own, caption]) for caption, own in pairs]
    rows = [[float(value) for value in line.split()] for line in _ask(command, lines)]
    rows = np.array(rows).reshape(len(lines), 23)
    # It does not penalise the single chunk of a caption equal to its reference.
    matched = rows[:, 4:20].reshape(-1, 8, 2).sum(axis=1)
    rows[(matched == rows[:, :2]).all(axis=1) & (rows[:, 20] == 1), 20] = 0.0
    return rows


def _ask(command: Sequence[str], lines: Sequence[str]) -> list[str]:
    text = "".join(f"{line}\n" for line in lines).encode()
    done = subprocess.run(command, input=text, capture_output=True, check=True)
    *answers, rest = done.stdout.decode().split("\n")
    if len(answers) != len(lines) or rest:
        raise ChildProcessError(f"{len(answers)} answers to {len(lines)} lines")
    return answers


def _seconds() -> float:
    """Returns the processor time of this process and of those it waited for."""
    return sum(os.times()[:4])


def _timed(name: str, function, *arguments):
    start = _seconds(), time.monotonic()
    found = function(*arguments)
    used, wall = _seconds() - start[0], time.monotonic() - start[1]
    print(f"{name}: {used:.2f} s of processor time, {wall:.2f} s")
    return found


def main(captions: tyro.conf.Positional[Path], images: int = 1000) -> None:
    """Compares and times.

    Args:
        captions: File of lines `image#n<tab>caption`.
        images: Number of images with five captions.
    """
    groups: dict[str, list[str]] = {}
    for line in captions.read_text(encoding="utf-8").splitlines():
        name, text = line.split("\t", 1)
        groups.setdefault(name.partition("#")[0], []).append(text)
    chosen = [texts for texts in groups.values() if len(texts) == 5][:images]
    lines = [text for texts in chosen for text in texts]
    meteor = Meteor()
    meteor.scores(["a dog runs"], [["a cat runs"]])
    theirs = _timed("tokens, Java", jar_tokens, lines)
    own = _timed("tokens", lambda: [" ".join(split_words(line)) for line in lines])
    print(f"tokens: {sum(a != b for a, b in zip(own, theirs, strict=True))} of {len(own)} differ")
    split = [own[n : n + 5] for n in range(0, len(own), 5)]
    sets = {
        "first under four": ([texts[0] for texts in split], [texts[1:] for texts in split]),
        "next under five": ([texts[0] for texts in split[1:] + split[:1]], split),
    }
    for name, (candidates, references) in sets.items():
        rows = _timed(f"METEOR, {name}, Java", jar_statistics, candidates, references)
        found = _timed(f"METEOR, {name}", meteor.statistics, candidates, references)
        each, other = meteor_scores(found), meteor_scores(rows)
        differ = int((np.abs(each - other) > 5e-3).sum())
        print(f"  {differ} of {len(each)} differ; corpus", end=" ")
        print(meteor_scores(found.sum(axis=0)), meteor_scores(rows.sum(axis=0)))


if __name__ == "__main__":
    tyro.cli(main)
