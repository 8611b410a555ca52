"""The attention figure: its size, where the light falls, and words of every kind."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, features

from sat_tf.inference import figures
from sat_tf.inference.captions import Caption
from sat_tf.inference.figures import (
    GLOW,
    attention_figure,
    figure_paths,
    save_attention_figure,
    save_figure,
)

GREY = np.full((64, 64, 3), 120, np.uint8)


def tile(sheet, number, columns, cell, label):
    """The pixels of a tile of a sheet without a title; 0 is the image itself."""
    left = 10 + number % columns * (cell + 10)
    top = 10 + number // columns * (cell + label)
    return sheet[top : top + cell, left : left + cell].astype(int)


def test_tiles_wrap_in_rows_of_six():
    for words, rows, columns in ((1, 1, 2), (5, 1, 6), (6, 2, 4), (20, 4, 6)):
        sheet = attention_figure(GREY, ["w"] * words, np.ones((words, 4, 4)), cell=80)
        assert sheet.dtype == np.uint8
        assert sheet.shape == (rows * (80 + 20) + 20, columns * 90 + 10, 3)


def test_light_falls_where_the_map_is_high():
    alpha = np.zeros((2, 4, 4))
    alpha[0, 0, 3] = 1.0  # top right
    alpha[1, 3, 0] = 0.01  # bottom left; scaled by its own maximum
    sheet = attention_figure(GREY, ["one", "two"], alpha, cell=80)
    first, second = (tile(sheet, n, 3, 80, 20) for n in (1, 2))
    for lit, dark in ((first[10, 70], first[70, 10]), (second[70, 10], second[10, 70])):
        assert lit[0] > 120
        assert (dark < 80).all()
        assert np.ptp(dark) == 0  # grey
    np.testing.assert_array_equal(first, second[::-1, ::-1])


def test_first_tile_is_the_image_unchanged():
    image = np.random.default_rng(0).integers(0, 255, (80, 80, 3), np.uint8)
    sheet = attention_figure(image, ["w"], np.ones((1, 2, 2)), cell=80)
    np.testing.assert_array_equal(tile(sheet, 0, 2, 80, 20), image)
    image = np.zeros((16, 16, 3), np.uint8)
    image[:, 8:] = 255
    sheet = attention_figure(image, ["w"], np.ones((1, 2, 2)), cell=64)
    assert set(np.unique(tile(sheet, 0, 2, 64, 20))) == {0, 255}


def test_long_words_stay_inside_their_tile():
    alpha = np.ones((2, 2, 2))
    long = attention_figure(GREY, ["a", "m" * 200], alpha, cell=80)
    short = attention_figure(GREY, ["a", "m"], alpha, cell=80)
    assert long.shape == short.shape
    left_of_it = slice(0, 10 + 2 * 90 - 10)
    np.testing.assert_array_equal(long[:, left_of_it], short[:, left_of_it])
    assert (long[:, -9:] == 255).all()


def test_beta_and_title_are_drawn():
    alpha = np.ones((3, 2, 2))
    words = ["a", "b", "c"]
    plain = attention_figure(GREY, words, alpha)
    low = attention_figure(GREY, words, alpha, beta=np.zeros(3))
    high = attention_figure(GREY, words, alpha, beta=np.ones(3))
    assert low.shape[0] > plain.shape[0]
    assert (low != high).any()
    heights = [
        attention_figure(GREY, ["a", "b", "c"], alpha, title=title).shape[0]
        for title in ("w", "w" * 200, "w" * 400)
    ]
    one, two = np.diff(heights)
    assert one > 24 and abs(two - one) <= 48


def test_right_to_left_captions_begin_at_the_right(monkeypatch):
    words, alpha = ["\u05d0", "\u05d1"], np.ones((2, 2, 2))
    if features.check("raqm"):
        monkeypatch.setattr(figures, "has_glyph", lambda *_: True)
        sheet = attention_figure(GREY, words, alpha, title=" ".join(words), cell=80)
        ink = (sheet[:24] < 60).all(-1).any(0).nonzero()[0]  # the title
        assert ink.min() > sheet.shape[1] / 2
        assert (sheet[40:90, -90:-10] == 120).all() and (sheet[40:90, 10:90] != 120).any()


def test_a_caption_that_cannot_be_drawn_is_a_line_and_no_file(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(figures, "FONTS", ())
    word = "\u0915\u0915"
    caption = Caption(word, (word,), 0.0, 0.0, np.zeros(1), np.ones((1, 2, 2)), None)
    path = tmp_path / "dog.png"
    assert save_attention_figure(path, GREY, caption) is path.exists() is False
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "dog.png: not drawn. No font" in said
    assert "\u0915" in said and "fonts-noto-core" in said


def test_a_tile_too_narrow_for_the_number_has_the_bar_alone():
    narrow = np.full((64, 12, 3), 120, np.uint8)
    for image in (GREY, narrow):
        sheet = attention_figure(image, ["a", "b"], np.ones((2, 2, 2)), np.array([0, 1]), cell=16)
        glowing = (sheet == GLOW).all(axis=-1).any(axis=0)
        width = (sheet.shape[1] - 10) // 3 - 10
        assert glowing.nonzero()[0].tolist() == list(range(30 + 2 * width, 30 + 3 * width))


def test_images_that_are_not_square_keep_their_shape():
    wide = attention_figure(np.zeros((50, 100, 3), np.uint8), ["w"], np.ones((1, 2, 4)), cell=80)
    assert wide.shape == (40 + 20 + 20, 2 * 90 + 10, 3)
    grey = attention_figure(GREY[..., 0], ["w"], np.zeros((1, 2, 2)), cell=80)
    assert (tile(grey, 1, 2, 80, 20) < 80).all()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("image", {"image": GREY.astype(np.float32)}),
        ("image", {"image": GREY[..., :2]}),
        ("alpha", {"alpha": np.ones((3, 2, 2))}),
        ("alpha", {"alpha": np.ones((2, 4))}),
        ("beta", {"beta": np.ones(3)}),
        ("cell", {"cell": 3}),
    ],
)
def test_shapes_that_do_not_fit_are_errors(name, change):
    arguments = {"image": GREY, "words": ["a", "b"], "alpha": np.ones((2, 2, 2))} | change
    with pytest.raises(ValueError, match=f"argument `{name}`"):
        attention_figure(**arguments)


def test_without_attention_the_image_is_drawn_alone():
    image = np.full([32, 32, 3], 200, np.uint8)
    alone = attention_figure(image, ("a", "dog"), None, np.ones(2), title="a dog")
    assert np.array_equal(alone, attention_figure(image, (), np.zeros([0, 1, 1]), title="a dog"))


def test_figures_of_images_of_the_same_name_are_numbered(tmp_path):
    images = [Path("a/dog.jpg"), Path("b/dog.png"), Path("c/dog.jpg"), Path("cat.jpg")]
    names = ["dog.png", "dog-2.png", "dog-3.png", "cat.png"]
    assert figure_paths(tmp_path, images) == [tmp_path / name for name in names]
    assert figure_paths(tmp_path, [Path("a/Cat.jpg"), Path("b/cat.jpg")]) == [
        tmp_path / "Cat.png",
        tmp_path / "cat-2.png",
    ]
    folder = tmp_path / "new" / "figures"
    assert figure_paths(folder, [Path("dog.jpg")], "webp") == [folder / "dog.webp"]
    assert folder.is_dir()
    assert figure_paths(None, [Path("dog.jpg"), Path("cat.jpg")]) == [None, None]


def test_no_figure_overwrites_an_image(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    images = [Path("other/dog.jpg"), tmp_path / "dog.png", Path("cat.png"), Path("cat-2.png")]
    names = ["dog-2.png", "dog-3.png", "cat-3.png", "cat-2-2.png"]
    assert figure_paths(Path("."), images) == [Path(name) for name in names]
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "dog.png").symlink_to(tmp_path / "dog.png")
    assert figure_paths(Path("out"), [Path("dog.png")]) == [Path("out/dog-2.png")]


@pytest.mark.parametrize("kind", ["png", "jpg"])
def test_a_figure_replaces_an_earlier_figure_and_no_other_file(tmp_path, kind):
    path, image = tmp_path / f"dog.{kind}", np.full([32, 48, 3], 200, np.uint8)
    arguments = tmp_path, [Path("photographs") / "dog.jpg"], kind
    Image.fromarray(image).save(path, "PNG")
    with pytest.raises(ValueError, match=f"`--out`.*got {path}, not a figure"):
        figure_paths(*arguments)
    save_figure(path, image=image, words=("a", "dog"), alpha=np.eye(4).reshape(4, 2, 2)[:2])
    assert figure_paths(*arguments) == [path]
