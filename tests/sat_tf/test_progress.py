"""The progress bar: lines in a log, nothing when disabled."""

import pytest

from sat_tf.stderr import progress_bar


@pytest.mark.parametrize("enabled", [True, False])
def test_a_log_gets_lines_with_count_speed_and_time_left(capsys, enabled):
    with progress_bar(10, "Annotations", "images", enabled) as bar:
        for _ in range(5):
            bar.update(2)
    shown = capsys.readouterr().err.splitlines()
    assert len(shown) == enabled and "\r" not in "".join(shown)
    for line in shown:
        assert line.startswith("Annotations: 10/10 images, ")
        assert line.endswith("images/s, 00:00 left")


def test_slow_work_is_counted_per_second_too(capsys):
    bar = progress_bar(2, "Training", "steps")
    bar.last_print_t -= 60
    bar.update(2)
    bar.close()
    (line,) = capsys.readouterr().err.splitlines()  # at the update or at the end, not at both
    assert "0.03 steps/s" in line
