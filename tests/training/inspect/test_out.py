"""The results of `training.inspect` do not go among the data."""

from __future__ import annotations

import pytest

from training.inspect.command import main

ELSEWHERE = ("--data.image_dir", "../photos/images")


def test_the_report_does_not_go_among_the_captions(tmp_path, capsys):
    (tmp_path / "dev").mkdir()
    places = ("--data-dir", str(tmp_path), "--out", f"{tmp_path}/dev/..")
    assert main(["--recipe", "folder_soft", *places]) == 2
    assert "`--out`" in capsys.readouterr().err and not (tmp_path / "inspect.json").exists()


@pytest.mark.parametrize(
    ("data_dir", "out", "flags"), [("images", ".", ()), ("texts", "photos", ELSEWHERE)]
)
def test_the_page_s_images_do_not_go_among_the_data_s(tmp_path, capsys, data_dir, out, flags):
    (tmp_path / data_dir).mkdir()
    places = ("--data-dir", str(tmp_path / data_dir), "--out", str(tmp_path / out))
    assert main(["--recipe", "folder_soft", *places, *flags]) == 2
    assert "`--out`: expected a folder whose `images` is not" in capsys.readouterr().err


def test_images_that_are_no_page_s_stay(tmp_path, capsys):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "0100.png").write_bytes(b"mine")
    assert main(["--recipe", "scenes_soft", "--data.limit", "6", "--out", str(tmp_path)]) == 2
    assert "`images` is not in use" in capsys.readouterr().err
    assert (tmp_path / "images" / "0100.png").read_bytes() == b"mine"
