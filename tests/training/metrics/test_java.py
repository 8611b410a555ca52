"""A program that stays, with Python in the place of Java."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.waiting import eventually
from training.metrics.java import JavaError, JavaProgram

ECHO = "import sys\nfor line in sys.stdin: print(line.strip().upper(), flush=True)"
ONE_LINE = "import sys\nprint(input()); print('no memory', file=sys.stderr); sys.exit(3)"


def program(code):
    return JavaProgram([sys.executable, "-c", code], "The program")


def test_each_line_has_its_answer_as_often_as_asked():
    echo = program(ECHO)
    assert echo.ask(["a", "", "b c"]) == ["A", "", "B C"]
    assert echo.ask([]) == []
    assert echo.ask(["d"]) == ["D"]


def test_more_lines_than_pipes_hold_are_answered():
    lines = [f"{number} {'x' * 600}" for number in range(1000)]
    assert program(ECHO).ask(lines) == [line.upper() for line in lines]


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


def test_a_program_that_is_not_there_is_an_error():
    with pytest.raises(JavaError, match="METEOR did not run .*no_such_program"):
        JavaProgram(["no_such_program"], "METEOR")
