"""METEOR against its own program, and the Java programs behind the metrics."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.waiting import eventually
from training.metrics.captions import paired_over_seeds, score_captions, score_interval
from training.metrics.java import (
    ENGLISH,
    JavaError,
    JavaProgram,
    MeteorProgram,
    ask_java,
    meteor_command,
    meteor_scores,
    meteor_statistics,
    parse_statistics,
    score_line,
    tables_of,
)

USES_JAVA = True  # see tests/training/conftest.py

# Caption, references: one thing that METEOR treats apart in each.
PAIRS = [
    ("a dog runs across the grass", ["a dog runs across the grass", "a cat"]),  # one chunk
    ("the cat sat on the mat", ["on the mat sat the cat"]),  # all matched, several chunks
    ("dogs running and jumped", ["a dog runs and jumps", "dogs jump"]),  # stems
    ("a kid builds a fortress at the seaside", ["the child builds a castle at the beach"]),
    ("a large automobile near a house", ["a big car close to a home", "a car in front of it"]),
    ("the man is looking at the picture", ["the man takes a look at the photo"]),  # paraphrases
    ("a bird", ["a small black bird sits all alone on a wire", "birds"]),  # much too short
    ("a a a a bird bird of of the", ["a bird"]),  # much too long
    ("xyz", ["a house"]),  # nothing matches
    ("", ["a cat", "two cats"]),
    ("a cat", [""]),
    ("", [""]),
    ("a ||| caf\u00e9", ["a caf\u00e9", "|||"]),
]
REFERENCE_WORDS, CONTENT = 1, slice(4, 20, 4)


@pytest.fixture(scope="module")
def java() -> str:
    found = shutil.which("java")
    return found or pytest.skip("needs Java")


@pytest.fixture(scope="module")
def answers(java) -> list[str]:
    """METEOR's statistics of each pair, as it writes them."""
    lines = [score_line(caption, references) for caption, references in PAIRS]
    return ask_java(meteor_command(java), lines, 60, "METEOR")


def evaluate(java, corpora: list[list[str]], tables=ENGLISH) -> list[list[float]]:
    """Asks METEOR for the scores of a corpus, 0-100: one per segment, then the corpus."""
    text = "".join(" ||| ".join(["EVAL", *corpus]) + "\n" for corpus in corpora)
    done = subprocess.run(meteor_command(java, tables), input=text, capture_output=True, text=True)
    values = iter(100 * float(line) for line in done.stdout.split())
    return [[next(values) for _ in range(len(corpus) + 1)] for corpus in corpora]


@pytest.mark.slow
def test_scores_of_images_and_corpora_are_those_of_the_jar(java, answers):
    rows = parse_statistics(answers)
    assert (rows[:, CONTENT].sum(axis=0) > 0).all()  # every module has found something
    draws = np.random.default_rng(0).integers(len(PAIRS), size=(20, len(PAIRS)))
    draws = [np.arange(len(PAIRS)), *draws, np.array([0]), np.array([0, 0]), np.array([8, 9, 11])]
    told = evaluate(java, [[answers[i] for i in drawn] for drawn in draws])
    for drawn, (*segments, corpus) in zip(draws, told, strict=True):
        np.testing.assert_allclose(meteor_scores(rows[drawn]), segments, atol=1e-9)
        assert meteor_scores(rows[drawn].sum(axis=0)) == pytest.approx(corpus, abs=1e-9)
    weights = np.stack([np.bincount(drawn, minlength=len(PAIRS)) for drawn in draws])
    np.testing.assert_allclose(
        meteor_scores(weights @ rows), [corpus for *_, corpus in told], atol=1e-9
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("language", "caption", "stems"),
    [
        ("de", "ein hund läuft", "hunde laufen"),
        ("fr", "deux chiens courent", "le chien court"),
        ("es", "dos perros corren", "un perro corre"),
        ("cs", "pes běží", None),
        ("ru", "две собаки бегут", "собака бежит"),
        ("pt-BR", "dois cachorros correm", "um cachorro corre"),
        ("sv", "två hundar", "en hund"),
        ("ar", "كلب أسود يركض", "الكلاب السوداء"),
        ("hi", "एक कुत्ता", None),
    ],
)
def test_scores_of_other_languages_are_those_of_the_jar_with_their_tables(
    java, language, caption, stems
):
    tables, pairs = tables_of(language), [caption, stems or "x", "y"]
    lines = [score_line(caption, [reference], tables) for reference in pairs]
    answers = ask_java(meteor_command(java, tables), lines, 60, "METEOR")
    rows = parse_statistics(answers)
    ((*segments, corpus),) = evaluate(java, [answers], tables)
    np.testing.assert_allclose(meteor_scores(rows, tables), segments, atol=1e-9)
    assert meteor_scores(rows.sum(axis=0), tables) == pytest.approx(corpus, abs=1e-9)
    assert segments[0] == 100 and segments[2] == 0 and (segments[1] > 0) == bool(stems)


@pytest.mark.slow
def test_the_best_reference_is_the_one_that_counts(java, answers):
    single = [(caption, [r]) for caption, references in PAIRS for r in references]
    rows, each = np.split(meteor_statistics(*zip(*PAIRS, *single, strict=True)), [len(PAIRS)])
    np.testing.assert_array_equal(rows, parse_statistics(answers))
    assert rows[0, REFERENCE_WORDS] == 6
    assert meteor_scores(rows[0]) == 100
    scores = iter(meteor_scores(each))
    best = [max(next(scores) for _ in references) for _, references in PAIRS]
    np.testing.assert_allclose(meteor_scores(rows), best)


@pytest.mark.slow
def test_the_interval_is_that_of_the_score(java):
    rng = np.random.default_rng(0)
    words = ["a", "red", "blue", "small", "large", "circle", "square", "near", "the", "left", "of"]
    ids = [str(i) for i in range(60)]
    references = {i: [" ".join(rng.choice(words, 8)) for _ in range(2)] for i in ids}
    better = {i: r[0] if int(i) % 2 else "a circle" for i, r in references.items()}
    worse = {i: "a red circle near the left" for i in ids}
    a, b = (score_captions(captions, references) for captions in (better, worse))
    interval = score_interval(a, "meteor", samples=200)
    assert interval.difference == pytest.approx(a.scores["meteor"], abs=1e-9)
    assert interval.low < interval.difference < interval.high
    # The mean over images is another figure altogether.
    assert abs(a.per_image["meteor"].mean() - interval.difference) > 1
    paired = paired_over_seeds([a], [b], "meteor", samples=200)
    assert paired.difference == pytest.approx(a.scores["meteor"] - b.scores["meteor"])
    assert 0 < paired.low < paired.difference < paired.high


@pytest.mark.slow
def test_the_program_that_stays_gives_the_scores_of_single_images(answers):
    meteor, expected = MeteorProgram(), meteor_scores(parse_statistics(answers))
    for pairs in (PAIRS, PAIRS[::-1]):
        found = meteor.scores(*zip(*pairs, strict=True))
        np.testing.assert_allclose(found, expected)
        expected = expected[::-1]


def row(**counts) -> np.ndarray:
    """A row of statistics: eight words of which four functional on either side, as told."""
    values = np.zeros(23)
    values[:4] = 8, 8, 4, 4
    for name, count in counts.items():
        values[int(name[1:])] = count
    return values


def test_the_formula_by_hand():
    # Two content words matched exactly, one by its stem, in one chunk: weights 1 and 0.6, 0.75.
    values = row(_4=2, _5=2, _8=1, _9=1, _20=1, _21=3, _22=3)
    share = 0.75 * 2.6 / (0.75 * 4 + 0.25 * 4)
    expected = 100 * share * (1 - 0.6 * (1 / 3) ** 0.2)
    assert meteor_scores(values) == pytest.approx(expected)
    assert meteor_scores(np.stack([values, row()])) == pytest.approx([expected, 0])
    assert meteor_scores(5 * values) == pytest.approx(expected)


@pytest.mark.parametrize("answer", ["Error: no memory", "1.0 2.0", ""])
def test_answers_that_are_no_statistics_are_errors(answer):
    with pytest.raises(JavaError, match="METEOR answered"):
        parse_statistics([answer])


ECHO = "import sys\nfor line in sys.stdin: print(line.strip().upper(), flush=True)"
ONE_LINE = "import sys\nprint(input()); print('no memory', file=sys.stderr); sys.exit(3)"


def program(code):
    return JavaProgram([sys.executable, "-c", code], "The program")


def test_each_line_has_its_answer_as_often_as_asked():
    echo = program(ECHO)
    assert echo.ask(["a", "", "b c"]) == ["A", "", "B C"]
    assert echo.ask([]) == []
    assert echo.ask(["d"]) == ["D"]


def test_threads_get_the_answers_to_their_own_lines():
    echo = program(ECHO)
    asked = [[f"{thread} {number}" for number in range(250)] for thread in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(echo.ask, asked)) == asked


@pytest.mark.parametrize(
    ("code", "told"), [(ONE_LINE, "no memory"), ("raise SystemExit(3)", "exit status 3")]
)
def test_a_program_that_stops_is_an_error_with_what_it_said(code, told):
    stopping = program(code)
    with pytest.raises(JavaError, match=f"The program stopped .*{told}"):
        stopping.ask(["a", "b"])
    with pytest.raises(JavaError, match="The program stopped"):
        stopping.ask(["c"])


def test_the_program_ends_with_the_object(tmp_path):
    ended = tmp_path / "ended"
    echo = program(f"{ECHO}\nopen({str(ended)!r}, 'w')")
    assert echo.ask(["a"]) == ["A"] and not ended.exists()
    del echo
    eventually(ended.exists)


def test_ctrl_c_does_not_reach_the_program():
    (session,) = program("import os\nprint(os.getsid(0), flush=True)\ninput()").ask(["a"])
    assert int(session) != os.getsid(0)
