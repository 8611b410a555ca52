"""The images of a job: folders, globs and lists, each image once."""

import os
from pathlib import Path

import pytest

from serving.bulk import inputs
from serving.bulk.inputs import find_inputs


@pytest.fixture
def folder(tmp_path) -> Path:
    for name in ("b.jpg", "a.PNG", "notes.md", ".hidden.jpg", "deep/er/c.webp", "odd[1].jpg"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    return tmp_path


def no_spark():
    pytest.fail("Spark was started")


def found(folder: Path, *patterns: str) -> list[str]:
    made = find_inputs(no_spark, [str(folder / pattern) for pattern in patterns])
    assert made.images == [1] * len(made.paths) and not made.tables
    return [str(Path(path).relative_to(folder)) for path in made.paths]


def test_a_list_keeps_its_order_and_every_name_and_an_image_comes_once(folder):
    (folder / "list.txt").write_text(f"{folder}/gone.jpg\n\n  {folder}/b.jpg\n")
    assert found(folder, "list.txt") == ["gone.jpg", "b.jpg"]
    names = ["b.jpg", "c\u2028d\x85e\x0c.jpg", "f.jpg\u00a0"]
    text = "\ufeff" + "".join(f"{folder}/{name}\r\n" for name in names)
    (folder / "list.txt").write_bytes(text.encode())
    assert found(folder, "list.txt") == names
    assert found(folder, "b.jpg", "*.jpg", "b.jpg") == ["b.jpg", "odd[1].jpg"]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("", ["a.PNG", "b.jpg", "c.webp", "odd[1].jpg"]),
        ("*.jpg", ["b.jpg", "odd[1].jpg"]),
        ("*", ["a.PNG", "b.jpg", "c.webp", "notes.md", "odd[1].jpg"]),
        ("*/*.webp", []),
        ("d*", ["c.webp"]),
        ("d*/", ["c.webp"]),
        ("[bd]*", ["b.jpg", "c.webp"]),
        ("[bd]*/", ["c.webp"]),
        ("b.jpg/", []),
        ("deep/", ["c.webp"]),
        ("deep/**/", ["c.webp"]),
        ("deep/*", ["c.webp"]),
        ("deep/*.webp", []),
        ("**/*.webp", ["c.webp"]),
        ("**/*", ["a.PNG", "b.jpg", "c.webp", "notes.md", "odd[1].jpg"]),
        ("deep/**", ["c.webp"]),
        ("**/er/**/*.webp", ["c.webp"]),
        (".h*.jpg", [".hidden.jpg"]),
        (".*/*.jpg", ["d.jpg"]),
        ("?.jpg", ["b.jpg"]),
    ],
)
def test_a_pattern_means_the_same_here_and_on_a_file_system_of_arrow(folder, pattern, names):
    pytest.importorskip("pyarrow")
    (folder / ".thumbnails").mkdir()
    (folder / ".thumbnails" / "d.jpg").touch()
    here = inputs.find_files(f"{folder}/{pattern}")
    there = inputs.find_files(f"file:/{'/'}/{str(folder).lstrip('/')}/{pattern}")
    expected = ["d.jpg", *names] if pattern == "" else names
    assert [Path(path).name for path in here] == expected
    assert [path.removeprefix("file://") for path in there] == here


@pytest.fixture
def sealed(monkeypatch) -> None:
    """Refuses to list `er`; the superuser, who may run the tests, reads any folder."""
    scan = os.scandir

    def refuse(path):
        if Path(path).name == "er":
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)


@pytest.mark.parametrize("pattern", ["", "*", "**/*.jpg", "*/*/*.jpg", "d*/", "**/"])
def test_a_folder_that_cannot_be_read_is_an_error(folder, sealed, pattern):
    with pytest.raises(OSError, match="Permission denied: .*er"):
        inputs.find_files(f"{folder}/{pattern}")


@pytest.mark.parametrize("pattern", ["*.jpg", "deep/*.jpg", "[!d]*/**/*.jpg", "*/*.webp"])
def test_folders_that_a_pattern_does_not_reach_are_not_opened(folder, sealed, pattern):
    inputs.find_files(f"{folder}/{pattern}")


def test_links_to_folders_are_followed_as_far_as_the_pattern_reaches(folder, tmp_path_factory):
    away = tmp_path_factory.mktemp("away")
    (away / "x.jpg").touch()
    for link in ("link", "deep/link"):
        (folder / link).symlink_to(away)
    (folder / "broken.jpg").symlink_to("gone")
    assert found(folder, "l*") == found(folder, "link/*.jpg") == ["link/x.jpg"]
    assert found(folder, "**/x.jpg") == ["deep/link/x.jpg", "link/x.jpg"]
    assert found(folder, "d*") == ["deep/er/c.webp"]
    assert "link/x.jpg" not in found(folder, "")
    assert found(folder, "br*") == ["broken.jpg"]  # told as unreadable


@pytest.mark.parametrize("pattern", ["*.gif", "nowhere", "empty.txt"])
def test_a_pattern_that_matches_nothing_is_an_error(folder, pattern):
    (folder / "empty.txt").write_text("\n")
    with pytest.raises(ValueError, match=rf"`--input`: expected images .* got .*{pattern[-4:]}"):
        found(folder, pattern)
