"""Warm-up records are requests that the export answers, one for each set of outputs."""

from __future__ import annotations

import pytest

from tests.serving.export_fixtures import warm_up_calls

KINDS = ["soft", pytest.param("none", marks=pytest.mark.slow)]


@pytest.mark.parametrize("kind", KINDS)
def test_each_set_of_outputs_of_every_signature_has_its_own_record(exports, kind):
    calls = warm_up_calls(exports[kind].version).values()
    asked = [(call["signature"], tuple(call["outputs"])) for call in calls]
    assert {signature for signature, _ in asked} == {"serving_default", "pixels", "every_beam"}
    assert len(set(asked)) == len(asked) > 3 and ("serving_default", ()) in asked


@pytest.mark.parametrize("kind", KINDS)
def test_every_record_is_answered_with_a_caption(exports, answers, kind):
    for name, call in warm_up_calls(exports[kind].version).items():
        answer = answers(kind)["calls"][name]
        assert set(answer) == set(call["outputs"]) or not call["outputs"]
        assert answer["valid"] == [True] and answer["captions"][0][0]
