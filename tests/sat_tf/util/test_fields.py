"""Types and ranges of fields, their JSON, and the errors that name the key."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import pytest

from digits.config import PortionsConfig, RAMConfig
from sat_tf.config import (
    AttentionConfig,
    CaptionerConfig,
    DecoderConfig,
    EncoderConfig,
    SearchConfig,
)
from sat_tf.util.fields import (
    Fraction,
    NonNegative,
    NonNegativeInt,
    Positive,
    PositiveInt,
    Probability,
    Range,
    check_fields,
    from_dict,
    to_dict,
)


@dataclass(frozen=True)
class Model:
    size: PositiveInt = 1
    count: NonNegativeInt = 0
    weight: NonNegative | None = None
    rate: Positive = 1.0
    probability: Probability = 0.5
    share: Fraction = 0.5
    tilt: Annotated[float, Range(-1, 1, without_low=True)] = 0.0
    name: str = "-7"
    free: float = -7.0


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("size", (1, 10**9)),
        ("count", (0,)),
        ("weight", (None, 0.0, 1e9)),
        ("rate", (1e-9,)),
        ("probability", (0.0, 1.0, 0, 1)),
        ("share", (0.0, 0.999)),
        ("tilt", (-0.999, 1.0)),
    ],
)
def test_values_up_to_the_ends_of_a_range_are_taken(name, values):
    for value in values:
        check_fields(Model(**{name: value}))


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("size", 0, "a number of at least 1"),
        ("count", -1, "a number of at least 0"),
        ("weight", -1e-9, "a number of at least 0"),
        ("weight", math.inf, "a number of at least 0"),
        ("rate", 0.0, "a number above 0"),
        ("rate", math.nan, "a number above 0"),
        ("probability", 1.001, "a number in [0, 1]"),
        ("share", 1.0, "a number in [0, 1)"),
        ("share", -0.1, "a number in [0, 1)"),
        ("tilt", -1.0, "a number in (-1, 1]"),
    ],
)
def test_a_value_outside_is_an_error_that_names_key_range_and_value(name, value, expected):
    for group, key in (("", f"--{name}"), ("model", f"--model.{name}")):
        with pytest.raises(ValueError) as error:
            check_fields(Model(**{name: value}), group)
        message = f"invalid value for key `{key}`: expected {expected}, got {value!r}."
        assert message in str(error.value)


@pytest.mark.parametrize(
    ("cls", "values", "message"),
    [
        (AttentionConfig, {"kind": "Hard"}, "`--attention.kind`: expected one of soft, hard, none"),
        (EncoderConfig, {"trainable": "True"}, "`--encoder.trainable`: expected bool, got 'True'"),
        (EncoderConfig, {"resize": ["crop"]}, "`--encoder.resize`: expected one of crop, squash"),
        (DecoderConfig, {"hidden_dim": 2.5}, "`--decoder.hidden_dim`: expected int, got 2.5"),
        (DecoderConfig, {"hidden_dropout": "0.1"}, "`--decoder.hidden_dropout`: expected float"),
        (SearchConfig, {"beam": True}, "`--search.beam`: expected int, got True"),
        (SearchConfig, {"length_power": 10**400}, "`--search.length_power`: expected float"),
        (CaptionerConfig, {"search": {"beam": 1}}, "`--search`: expected SearchConfig"),
        (RAMConfig, {"first_location": "top"}, "expected one of learned, random, got 'top'"),
        (PortionsConfig, {"attention": "Soft"}, "`--model.attention`: expected one of soft, hard"),
    ],
)
def test_a_value_of_another_type_or_no_option_cannot_be_configured(cls, values, message):
    with pytest.raises(ValueError) as error:
        cls(**values)
    assert "invalid value for key `--" in str(error.value) and message in str(error.value)


def test_scalars_of_numpy_and_paths_are_taken_and_written_as_json():
    search = SearchConfig(beam=np.int64(3), length_power=np.float32(0.5))
    assert json.loads(json.dumps(to_dict(search)))["beam"] == 3
    decoder = to_dict(DecoderConfig(gate=np.True_))
    assert decoder["gate"] is True
    encoder = to_dict(EncoderConfig(weights=Path("a") / "b.weights.h5"))
    assert encoder["weights"] == "a/b.weights.h5"
    assert from_dict(EncoderConfig, encoder).weights == "a/b.weights.h5"


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


def test_a_whole_number_becomes_a_float_if_one_is_expected():
    made = from_dict(SearchConfig, {"length_power": 1})
    assert isinstance(made.length_power, float)
    assert made == SearchConfig(length_power=1.0)
