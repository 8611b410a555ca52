"""Tokens and METEOR of the programs in Java in pycocoevalcap."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sat_tf.scores.meteor_scoring import ENGLISH, Tables
from sat_tf.scores.ptb import PUNCTUATION


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
