"""Text of figures in every script: a font that has it, or a sentence."""

import contextlib

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont, features

from sat_tf.inference import figures
from sat_tf.inference.figures import MissingFontError, clusters, lettering_of

CAPTIONS = {
    "ar": "كلب أسود يركض على العشب NBA 23",
    "fa": "پسر بچه‌ای در حال پریدن",
    "he": "כלב שחור רץ על הדשא",
    "hi": "एक बच्चा सीढ़ियों पर",
    "th": "เด็กปีนบันได น้ำ",
    "zh": "一只狗在跑",
    "ja": "黒い犬が走る",
    "ko": "검은 개가 달린다",
    "ru": "чёрная собака бежит",
    "am": "ጥቁር ውሻ በሣር ላይ",
}
BY_LANGUAGE = pytest.mark.parametrize(("language", "text"), CAPTIONS.items(), ids=CAPTIONS)


def drawn(text: str, style=figures.PLAIN) -> bytes:
    """The pixels of a text."""
    sheet = Image.new("RGB", (300, 30), figures.PAPER)
    figures.write_text(ImageDraw.Draw(sheet), (4, 4), text, 16, style)
    return np.asarray(sheet).tobytes()


@pytest.fixture
def use_fonts(monkeypatch):
    """A function that says how the system loads fonts by name; no choice is kept."""

    def forget():
        for cached in vars(figures).values():
            getattr(cached, "cache_clear", lambda: None)()

    def use(load) -> None:
        monkeypatch.setattr(ImageFont, "truetype", load)
        forget()

    yield use
    monkeypatch.undo()
    forget()


def no_font(name, *_, **__):
    """The system has no font but Pillow's own, which Pillow gives as a file."""
    raise OSError


@BY_LANGUAGE
def test_captions_are_drawn_shaped_or_a_sentence_names_their_letters(language, text):
    style = lettering_of(text, language)
    assert style.right_to_left == (language in ("ar", "fa", "he"))
    try:
        assert min(drawn(text, style)) < 60
    except MissingFontError:
        pytest.skip("needs fonts-noto-core, fonts-noto-cjk and Raqm")


@BY_LANGUAGE
def test_without_fonts_a_sentence_names_letters_and_package(monkeypatch, use_fonts, language, text):
    own = ImageFont.load_default(16)
    monkeypatch.setattr(own, "font_variant", lambda **_: own)
    monkeypatch.setattr(ImageFont, "load_default", lambda _: own)
    use_fonts(no_font)
    with pytest.raises(MissingFontError, match="No font .* has the letters .*fonts-noto") as error:
        drawn(text, lettering_of(text, language))
    letters = [part for part in clusters(text) if ord(part[0]) > 0xFF]
    assert letters[0] in str(error.value) and "?" not in str(error.value)


def test_without_raqm_letters_that_it_joins_are_a_sentence(monkeypatch, use_fonts):
    use_fonts(ImageFont.truetype)
    monkeypatch.setattr(features, "check", lambda _: False)
    monkeypatch.setattr(figures, "has_glyph", lambda *_: True)
    for language in ("ar", "fa", "he", "hi", "th"):
        with pytest.raises(MissingFontError, match="no Raqm: install FriBidi .*libfribidi0"):
            drawn(CAPTIONS[language], lettering_of(CAPTIONS[language], language))
    for language in ("zh", "ja", "ko", "ru", "am"):
        drawn(CAPTIONS[language])


@pytest.mark.parametrize(
    ("language", "index"),
    [("zh", 2), ("zh-Hant", 3), ("zh-HK", 4), ("ja", 0), ("ko", 1), ("en", 2)],
)
def test_chinese_characters_take_the_forms_of_the_language(use_fonts, language, index):
    asked, truetype = [], ImageFont.truetype

    def load(font=None, size=10, index=0, **options):
        asked.append((font, index))
        return truetype(font, size, index, **options)

    use_fonts(load)
    with contextlib.suppress(MissingFontError):
        drawn("一只狗", lettering_of("一只狗", language))  # en: as zh
    assert ("NotoSansCJK-Regular.ttc", index) in asked


@pytest.mark.parametrize("text", ["a title of words", "one " + "w" * 60])
def test_lines_fit_their_width_and_keep_every_character(text):
    lines = figures.wrap(text, 16, 120)
    assert all(figures.text_width(line, 16) <= 120 for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_letters_keep_their_marks():
    assert clusters("क्षि न้ำ") == ["क्षि", " ", "न้ำ"]
    assert clusters("நாய் e\u0301") == ["நா", "ய்", " ", "\u00e9"]
