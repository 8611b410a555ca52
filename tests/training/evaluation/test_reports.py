"""Reports on disk, and the console table."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from training.evaluation.report import format_scores, write_report


def test_json_is_valid_whatever_the_values(tmp_path):
    odd = {"scores": {"bleu_1": float("nan")}, "path": Path("a/b"), "array": np.arange(2), 5: (1,)}
    write_report(tmp_path / "deep" / "er", odd | {"seed": np.int64(3)})
    content = (tmp_path / "deep" / "er" / "report.json").read_text("utf-8")
    report = json.loads(content, parse_constant=lambda name: pytest.fail(name))
    plain = {"scores": {"bleu_1": None}, "path": "a/b", "array": [0, 1], "5": [1], "seed": 3}
    assert report == plain


def test_console_table_has_two_decimals_and_intervals():
    lines = format_scores(
        {"bleu_4": 21.3, "brevity_ratio": 0.9512, "meteor": None, "cider": 47.123},
        {"bleu_4": (21.3, 20.1, 22.6), "meteor": (math.nan,) * 3},
    ).splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["bleu_4", "21.30"],
        ["brevity_ratio", "0.951"],
        ["meteor", "undefined"],
        ["cider", "47.12"],
    ]
    assert lines[0].endswith("[20.10, 22.60]") and lines[2].endswith("undefined")
