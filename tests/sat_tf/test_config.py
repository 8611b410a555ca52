"""Configuration of a captioner: presets, and settings that contradict each other."""

import pytest

from sat_tf.config import AttentionConfig, EncoderConfig, SearchConfig, SearchFlags
from sat_tf.util.fields import from_dict


def test_a_frozen_encoder_takes_no_first_trainable_layer():
    message = "`--encoder.trainable_from`: expected None for a frozen encoder .*, got 'conv4'"
    with pytest.raises(ValueError, match=message):
        EncoderConfig(trainable_from="conv4")


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
            {"preset": "vimco", "baseline": "none"},
            "`--attention.reward_to_go`: expected False.*got none and True",
        ),
        ({"bound": "tight"}, "`bound`: expected one of elbo, importance_weighted or None"),
        ({"reward_to_go": 1}, "`reward_to_go`: expected bool or None"),
    ],
)
def test_settings_of_attention_that_contradict_each_other_are_errors(values, message):
    with pytest.raises(ValueError, match=message):
        from_dict(AttentionConfig, {"kind": "hard", **values})


def test_keys_given_replace_the_values_of_the_preset():
    chosen = AttentionConfig("hard", preset="vimco", samples=3, reward_weight=0.5).estimator
    assert (chosen.samples, chosen.reward_weight) == (3, 0.5)
    assert (chosen.bound, chosen.baseline) == ("importance_weighted", "leave_one_out")
    default = AttentionConfig("hard").estimator
    assert (default.samples, default.baseline, default.bound) == (1, "moving_average", "elbo")
    assert not default.reward_to_go
    assert default.expectation_probability == 0.5


def test_flags_of_a_search_replace_its_settings_where_they_are_given():
    search = SearchConfig(beam=3, length_power=0.7, suppress_unknown=False)
    assert SearchFlags().over(search) == search
    expected = SearchConfig(1, 0.7, consensus=2.0, max_length=9, suppress_unknown=False)
    assert SearchFlags(beam=1, consensus=2.0, max_length=9).over(search) == expected
