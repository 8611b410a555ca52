"""Output of libraries is held back; the progress bar: lines in a log, nothing when disabled."""

import os
import sys

import pytest

from sat_tf.stderr import progress_bar
from sat_tf.util.commands import loading


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


def test_native_log_lines_show_only_if_an_import_fails(monkeypatch, capfd):
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    with loading():
        os.write(2, b"an early line\n")
    os.write(2, b"a later line\n")
    assert capfd.readouterr().err == "a later line\n"
    with pytest.raises(ImportError), loading():
        os.write(2, b"the reason\n")
        raise ImportError
    assert capfd.readouterr().err == "the reason\n"
