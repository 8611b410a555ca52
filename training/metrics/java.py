"""Programs in Java behind the metrics: the PTB tokeniser, and METEOR 1.5.

pycocoevalcap brings both as jars. A program answers each line with one line; it runs
once, or stays loaded for many questions.

METEOR aligns words by the tables of their language, for English also of synonyms and paraphrases;
languages without any share parameters and match equal words. The score is a formula on its
counts, computed here so that a thousand resamples need no Java.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from sat_tf.tokens import primary

# Time limit of a program, and its addition per image: programs take seconds, busy machines more.
SECONDS, SECONDS_PER_IMAGE = 300.0, 0.5


class JavaError(ChildProcessError):
    """A Java program did not start, stopped early, or did not answer in time."""


# A pipe holds 64 KiB. Were more answers asked for at once, program and asker could wait for each
# other, both with a full pipe.
_LINES_AT_ONCE = 100

_END_OF_STDERR = 300  # characters in an error


def find_java() -> str | None:
    """Returns the path of the `java` program, or None."""
    return shutil.which("java")


def _java() -> str:
    if java := find_java():
        return java
    raise JavaError("Java was not found.")


def ask_java(command: Sequence[str], lines: Sequence[str], seconds: float, name: str) -> list[str]:
    """Runs a program that answers each line with one line; returns the answers.

    Raises:
        JavaError: It did not start, failed, took too long, or answered another number of lines.
    """
    text = "".join(f"{line}\n" for line in lines).encode(errors="replace")
    try:
        done = subprocess.run(command, input=text, capture_output=True, timeout=seconds, check=True)
    except subprocess.TimeoutExpired as error:
        raise JavaError(f"{name} did not run (no answer within {seconds:g} s).") from error
    except (OSError, subprocess.SubprocessError) as error:
        told = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip()
        raise JavaError(f"{name} did not run ({told[-_END_OF_STDERR:] or error}).") from error
    *answers, rest = done.stdout.decode(errors="replace").split("\n")
    if len(answers) != len(lines) or rest:
        raise JavaError(f"{name} answered {len(answers)} lines to {len(lines)}.")
    return answers


class JavaProgram:
    """A Java program that is loaded once and answers lines for as long as this object lives.

    Threads may share it.

    Args:
        command: The command; it has to answer each line with one line.
        name: Its name, for errors.

    Raises:
        JavaError: It did not start.
    """

    def __init__(self, command: Sequence[str], name: str) -> None:
        self._name, self._lock = name, threading.Lock()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115, open as long as the program runs
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._said}
        try:
            # In a session of its own, Ctrl-C does not reach it: the step under way still needs it.
            self._process = subprocess.Popen(command, **pipes, start_new_session=True)
        except OSError as error:
            raise JavaError(f"{name} did not run ({error}).") from error
        # The end of its input ends the program.
        weakref.finalize(self, _close, self._process.stdin)

    def ask(self, lines: Sequence[str]) -> list[str]:
        """Sends lines of at most some hundred characters; returns the answers.

        Raises:
            JavaError: The program has stopped.
        """
        answers: list[str] = []
        with self._lock:
            for first in range(0, len(lines), _LINES_AT_ONCE):
                answers += self._ask_part(lines[first : first + _LINES_AT_ONCE])
        return answers

    def _ask_part(self, lines: Sequence[str]) -> list[str]:
        try:
            self._process.stdin.write("".join(f"{line}\n" for line in lines).encode())
            self._process.stdin.flush()
        except OSError as error:
            raise self._stopped() from error
        answers = [self._process.stdout.readline().decode(errors="replace") for _ in lines]
        if not all(answer.endswith("\n") for answer in answers):
            raise self._stopped()
        return [answer.rstrip("\n") for answer in answers]

    def _stopped(self) -> JavaError:
        status = self._process.wait()
        self._said.seek(0)
        told = self._said.read().decode(errors="replace").strip()[-_END_OF_STDERR:]
        return JavaError(f"{self._name} stopped ({told or f'exit status {status}'}).")


def _close(pipe: IO[bytes]) -> None:
    with contextlib.suppress(OSError):  # the program has stopped by itself
        pipe.close()


def ptb_lines(lines: Sequence[str]) -> list[str]:
    """Splits each line by the PTB tokeniser: small letters, no punctuation.

    Raises:
        JavaError: There is no Java, or it failed.
    """
    from pycocoevalcap.tokenizer import ptbtokenizer

    jar = Path(ptbtokenizer.__file__).with_name(ptbtokenizer.STANFORD_CORENLP_3_4_1_JAR)
    command = [_java(), "-cp", str(jar), "edu.stanford.nlp.process.PTBTokenizer"]
    command += ["-preserveLines", "-lowerCase", "-encoding", "UTF-8"]
    # A line break inside a caption would shift all lines after it.
    lines = [" ".join(line.split()) for line in lines]
    answers = ask_java(command, lines, SECONDS, "the PTB tokeniser")
    punctuation = set(ptbtokenizer.PUNCTUATIONS)
    return [" ".join(w for w in line.split() if w not in punctuation) for line in answers]


class Tables(NamedTuple):
    """METEOR's tables and parameters for a language, those of its task "rank" where it has them.

    Attributes:
        name: Of the language, for the jar.
        modules: Ways to match words that its tables allow, in the jar's order. Paraphrases come
            with pycocoevalcap for English only.
        alpha: Weight of recall against precision.
        beta: Exponent of the penalty for chunks.
        gamma: Weight of that penalty.
        delta: Weight of content words against function words.
        weights: Of the matches of each module, in the order exact, stem, synonym, paraphrase.
    """

    name: str
    modules: tuple[str, ...] = ("exact", "stem")
    alpha: float = 0.75
    beta: float = 1.4
    gamma: float = 0.7
    delta: float = 0.5
    weights: tuple[float, float, float, float] = (1.0, 0.5, 0.5, 0.5)

    def __str__(self) -> str:
        return f"{self.name}-{'+'.join(self.modules)}"


_ALL = ("exact", "stem", "synonym", "paraphrase")
ENGLISH = Tables("en", _ALL, 0.85, 0.2, 0.6, 0.75, (1.0, 0.6, 0.8, 0.6))
_TABLES = {
    "en": ENGLISH,
    "cs": Tables("cz", ("exact",), 0.95, 0.2, 0.6, 0.8, (1.0, 0.4, 0.0, 0.0)),
    "de": Tables("de", ("exact", "stem"), 0.95, 1.0, 0.55, 0.55, (1.0, 0.8, 0.2, 0.0)),
    "es": Tables("es", ("exact", "stem"), 0.65, 1.3, 0.5, 0.8, (1.0, 0.8, 0.6, 0.0)),
    "fr": Tables("fr", ("exact", "stem"), 0.9, 1.4, 0.6, 0.65, (1.0, 0.2, 0.4, 0.0)),
    "ar": Tables("ar-bw-red"),
    **{c: Tables(c) for c in ("da", "fi", "hu", "it", "nl", "no", "pt", "ro", "ru", "tr")},
    **dict.fromkeys(("nb", "nn"), Tables("no")),
    "sv": Tables("se"),
}
_OTHER = Tables("other", ("exact",))
# The jar's table of Arabic stems is in Buckwalter's letters, with one alif and one yaa.
_BUCKWALTER = str.maketrans(
    "\u0621\u0622\u0623\u0624\u0625\u0626\u0627\u0628\u0629\u062a\u062b\u062c\u062d\u062e\u062f\u0630\u0631\u0632\u0633"
    "\u0634\u0635\u0636\u0637\u0638\u0639\u063a\u0641\u0642\u0643\u0644\u0645\u0646\u0647\u0648\u0649\u064a",
    "'AA&A}AbptvjHxd*rzs$SDTZEgfqklmnhwyy",
)


def tables_of(language: str) -> Tables:
    """Returns METEOR's tables for a language code, such as "de" or "pt-BR"."""
    return _TABLES.get(primary(language), _OTHER)


STATISTICS = 23
# Columns of a row: words, then function words, each of candidate and reference; matched words by
# module, content or function, candidate or reference; chunks; matched words of both.
_WORDS, _MATCHES, _CHUNKS, _MATCHED = slice(0, 4), slice(4, 20), 20, slice(21, 23)


def meteor_command(java: str, tables: Tables = ENGLISH) -> list[str]:
    """Returns the command of METEOR, which reads SCORE and EVAL lines until its input ends."""
    from pycocoevalcap.meteor import meteor

    jar = Path(meteor.__file__).with_name(meteor.METEOR_JAR)
    command = [java, "-Xmx2G", "-Dfile.encoding=UTF-8", "-jar", str(jar), "-", "-", "-stdio"]
    command += ["-l", tables.name, "-m", " ".join(tables.modules)]
    # It lower-cases and splits English once more; words of other languages come as they are to be.
    return [*command, "-norm"] if tables == ENGLISH else command


def score_line(caption: str, references: Sequence[str], tables: Tables = ENGLISH) -> str:
    """Formats the request for the statistics of one image."""
    # The bar is METEOR's separator.
    line = " ||| ".join(["SCORE", *(s.replace("|", " ") for s in (*references, caption))])
    return line.translate(_BUCKWALTER) if tables.name == "ar-bw-red" else line


def meteor_statistics(
    words: Sequence[str], references: Sequence[Sequence[str]], tables: Tables = ENGLISH
) -> np.ndarray:
    """Computes the contribution of each of `N` images to corpus METEOR.

    Of several references METEOR takes the one with the best score for its image.

    Returns:
        `[N, 23]`; the sum over rows is that of the corpus, see `meteor_scores`.

    Raises:
        JavaError: There is no Java, or METEOR did not run.
    """
    lines = [score_line(w, r, tables) for w, r in zip(words, references, strict=True)]
    seconds = SECONDS + SECONDS_PER_IMAGE * len(lines)
    answers = ask_java(meteor_command(_java(), tables), lines, seconds, "METEOR")
    return parse_statistics(answers)


class MeteorProgram:
    """METEOR, loaded once for many questions in one language.

    Raises:
        JavaError: There is no Java, or METEOR did not start.
    """

    def __init__(self, language: str = "en") -> None:
        self._tables = tables_of(language)
        self._program = JavaProgram(meteor_command(_java(), self._tables), "METEOR")

    def scores(self, captions: Sequence[str], references: Sequence[Sequence[str]]) -> np.ndarray:
        """Computes the METEOR of each caption, `[N]`, 0-100.

        Raises:
            JavaError: METEOR has stopped.
        """
        pairs = zip(captions, references, strict=True)
        lines = [score_line(c, r, self._tables) for c, r in pairs]
        return meteor_scores(parse_statistics(self._program.ask(lines)), self._tables)


def parse_statistics(answers: Sequence[str]) -> np.ndarray:
    """Parses METEOR's answers to SCORE lines into rows `[N, 23]` that can be summed."""
    try:
        rows = np.array([[float(value) for value in line.split()] for line in answers])
        rows = rows.reshape(len(answers), STATISTICS)
    except ValueError as error:
        raise JavaError(f"METEOR answered something else than statistics ({error}).") from error
    # METEOR does not penalise the single chunk of a caption identical to its reference, in the
    # score of the image and of the corpus alike.
    matched = rows[:, _MATCHES].reshape(-1, 8, 2).sum(axis=1)
    whole = (matched == rows[:, :2]).all(axis=1) & (rows[:, _CHUNKS] == 1)
    rows[whole, _CHUNKS] = 0.0
    return rows


def meteor_scores(totals: np.ndarray, tables: Tables = ENGLISH) -> np.ndarray:
    """Computes corpus METEOR from summed statistics, for any number of corpora at once.

    Content words weigh delta, function words 1 - delta, matches also the weight of their module.
    With P and R the weighted shares of words matched in candidates and references,
    F = P R / (alpha P + (1 - alpha) R) and METEOR = F (1 - gamma (chunks / matches)^beta).

    Args:
        totals: `[..., 23]`, sums of rows of `meteor_statistics`, weighted or not; a single row
            gives the score of its image.
        tables: Those that the rows were computed with.

    Returns:
        `[...]`, 0-100; 0 if nothing matches.

    References:
        Denkowski and Lavie (2014), "Meteor Universal: Language Specific Translation Evaluation for
        Any Target Language".
    """
    totals = np.asarray(totals, np.float64)
    matches = totals[..., _MATCHES].reshape(*totals.shape[:-1], 4, 2, 2)
    _, _, alpha, beta, gamma, delta, weights = tables
    weights = np.outer(weights, [delta, 1.0 - delta])
    matches = np.einsum("...mks,mk->...s", matches, weights)
    words, function_words = np.split(totals[..., _WORDS], 2, axis=-1)
    lengths = delta * (words - function_words) + (1.0 - delta) * function_words
    precision, recall = np.moveaxis(_ratio(matches, lengths), -1, 0)
    mean = _ratio(precision * recall, alpha * precision + (1.0 - alpha) * recall)
    fragmentation = _ratio(totals[..., _CHUNKS], totals[..., _MATCHED].mean(axis=-1))
    return 100.0 * mean * (1.0 - gamma * fragmentation**beta)


def _ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """Returns the quotient, 0 where the denominator is 0."""
    return np.divide(numerator, denominator, out=np.zeros_like(denominator), where=denominator > 0)
