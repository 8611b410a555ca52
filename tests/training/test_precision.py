"""`--fit.precision auto` takes what is faster here, says so, and keeps it."""

from __future__ import annotations

import dataclasses
import json

import pytest

from sat_tf.fields import to_dict
from training import precision
from training.precision import product_seconds, resolve_precision
from training.recipes.captioning import RECIPES


def asking_for(name: str):
    config = RECIPES["scenes_soft"]
    return dataclasses.replace(config, fit=dataclasses.replace(config.fit, precision=name))


@pytest.mark.parametrize(("seconds", "chosen"), [(0.5, "bfloat16"), (0.95, "float32")])
def test_the_faster_precision_is_chosen(monkeypatch, capsys, tmp_path, seconds, chosen):
    found = {"float32": 1.0, "bfloat16": seconds}
    monkeypatch.setattr(precision, "product_seconds", lambda: found)
    assert resolve_precision(asking_for("auto"), tmp_path).fit.precision == chosen
    assert f"Precision {chosen}" in capsys.readouterr().out


def test_what_is_asked_for_is_not_timed(monkeypatch, tmp_path):
    monkeypatch.delattr(precision, "product_seconds")
    assert resolve_precision(asking_for("bfloat16"), tmp_path) == asking_for("bfloat16")


def test_products_are_timed_in_both():
    found = product_seconds(side=64)
    assert set(found) == {"float32", "bfloat16"} and min(found.values()) > 0


@pytest.mark.parametrize("kept", ["float32", "bfloat16"])
def test_a_resumed_run_keeps_its_choice(monkeypatch, tmp_path, kept):
    (tmp_path / "config.json").write_text(json.dumps(to_dict(asking_for(kept))))
    monkeypatch.delattr(precision, "product_seconds")
    assert resolve_precision(asking_for("auto"), tmp_path) == asking_for(kept)
