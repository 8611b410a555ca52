"""Configurations: through JSON and back, and errors that name the key at fault."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

import pytest

from sat_tf.config import (
    AttentionConfig,
    CaptionerConfig,
    DecoderConfig,
    EncoderConfig,
    SearchConfig,
    from_dict,
    to_dict,
)

UNUSUAL = CaptionerConfig(
    encoder=EncoderConfig(
        "mobilenet_v2",
        layer="out_relu",
        trainable=True,
        trainable_from="Conv_1",
        image_size=96,
        resize="squash",
    ),
    decoder=DecoderConfig(hidden_dim=7, gate=False, output_dropout=0.25),
    attention=AttentionConfig("hard", preset="arctic", reward_weight=0.5, inference="argmax"),
    search=SearchConfig(beam=3, length_power=0.7),
)


@pytest.mark.parametrize("config", [CaptionerConfig(), UNUSUAL], ids=["default", "unusual"])
def test_a_configuration_comes_back_from_json(config):
    values = json.loads(json.dumps(to_dict(config)))
    assert from_dict(CaptionerConfig, values) == config


def test_a_frozen_encoder_has_no_layer_that_learns():
    message = "`--encoder.trainable_from`: expected None for a frozen encoder, got 'conv4'"
    with pytest.raises(ValueError, match=message):
        EncoderConfig(trainable_from="conv4")


def test_missing_keys_take_their_defaults():
    made = from_dict(CaptionerConfig, {"attention": {"kind": "hard"}})
    assert made == CaptionerConfig(attention=AttentionConfig(kind="hard"))


def test_configurations_are_frozen_and_hashable():
    with pytest.raises(dataclasses.FrozenInstanceError):
        UNUSUAL.decoder.hidden_dim = 8
    assert hash(UNUSUAL) == hash(dataclasses.replace(UNUSUAL))


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"beam": 1}, "`beam`"),
        ({"decoder": {"hiden_dim": 3}}, "`decoder.hiden_dim`"),
        ({"attention": {"Kind": "soft"}}, "`attention.Kind`"),
    ],
)
def test_an_unknown_key_is_named_with_its_path(values, name):
    with pytest.raises(ValueError, match=name) as error:
        from_dict(CaptionerConfig, values)
    assert "unknown" in str(error.value)


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"decoder": {"hidden_dim": "512"}}, "`decoder.hidden_dim`: expected int, got '512'"),
        ({"decoder": {"hidden_dim": 5.5}}, "`decoder.hidden_dim`: expected int"),
        ({"decoder": {"hidden_dim": True}}, "`decoder.hidden_dim`: expected int"),
        ({"decoder": {"hidden_dim": None}}, "`decoder.hidden_dim`: expected int"),
        ({"decoder": {"gate": 1}}, "`decoder.gate`: expected bool"),
        ({"decoder": {"output_dropout": "a"}}, "`decoder.output_dropout`: expected float"),
        ({"decoder": {"output_dropout": False}}, "`decoder.output_dropout`: expected float"),
        ({"attention": {"kind": "sof"}}, "`attention.kind`: expected one of soft, hard, none"),
        ({"attention": {"reward_weight": "x"}}, "`attention.reward_weight`"),
        ({"encoder": {"weights": 3}}, "`encoder.weights`"),
        ({"search": 5}, "`search`: expected SearchConfig"),
    ],
)
def test_a_value_of_the_wrong_type_is_named_with_what_was_expected(values, name):
    with pytest.raises(ValueError, match="invalid value for key") as error:
        from_dict(CaptionerConfig, values)
    assert name in str(error.value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"baseline": "leave_one_out"}, "`--attention.baseline`.*at least 2 for leave_one_out.*1"),
        ({"preset": "rloo", "samples": 1}, "`--attention.baseline`.*got 1"),
        ({"bound": "importance_weighted"}, "`--attention.bound`.*1 gives the elbo.*got 1"),
        (
            {"bound": "importance_weighted", "samples": 2, "preset": "arctic"},
            "`--attention.bound`.*arctic.*got importance_weighted",
        ),
        (
            {"preset": "vimco", "baseline": "learned"},
            "`--attention.reward_to_go`: expected False.*got learned and True",
        ),
        ({"samples": 0}, "`--attention.samples`"),
        ({"bound": "tight"}, "`bound`: expected one of elbo, importance_weighted or None"),
        ({"baseline": "greedy"}, "`baseline`: expected one of none, moving_average"),
        ({"preset": "reinforce"}, "`preset`: expected one of paper, arctic, rloo, vimco"),
        ({"reward_to_go": 1}, "`reward_to_go`: expected bool or None"),
    ],
)
def test_settings_of_attention_that_contradict_each_other_are_errors(values, message):
    with pytest.raises(ValueError, match=message):
        from_dict(AttentionConfig, {"kind": "hard", **values})


def test_what_is_given_replaces_the_preset_s():
    chosen = AttentionConfig("hard", preset="vimco", samples=3, reward_weight=0.5).estimator
    assert (chosen.samples, chosen.reward_weight) == (3, 0.5)
    assert (chosen.bound, chosen.baseline) == ("importance_weighted", "leave_one_out")
    default = AttentionConfig("hard").estimator
    assert (default.samples, default.baseline, default.bound) == (1, "moving_average", "elbo")
    assert not default.reward_to_go
    assert default.expectation_probability == 0.5


def test_a_whole_number_is_a_float_where_one_is_expected():
    made = from_dict(SearchConfig, {"length_power": 1})
    assert isinstance(made.length_power, float)
    assert made == SearchConfig(length_power=1.0)


def test_none_is_allowed_where_the_annotation_allows_it():
    values = {"layer": None, "weights": None}
    assert from_dict(EncoderConfig, values) == EncoderConfig()
    assert from_dict(AttentionConfig, {"reward_weight": None}).reward_weight is None


def test_a_dataclass_already_made_is_taken_as_it_is():
    decoder = DecoderConfig(hidden_dim=3)
    assert from_dict(CaptionerConfig, {"decoder": decoder}).decoder is decoder


def test_another_dataclass_may_hold_these():
    @dataclass(frozen=True)
    class Run:
        model: CaptionerConfig = dataclasses.field(default_factory=CaptionerConfig)

    # `from_dict` reads annotations, which are strings here and name a module global.
    assert from_dict(Run, {"model": {"search": {"beam": 2}}}).model.search.beam == 2
