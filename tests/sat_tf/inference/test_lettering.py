"""Text of figures in every script: a font that has it, or a sentence."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont, features

from sat_tf.inference import lettering
from sat_tf.inference.lettering import MissingFontError, clusters, lettering_of, require_fonts

CAPTIONS = {
    "ar": "كلب أسود يركض على العشب NBA 23",
    "fa": "پسر بچه‌ای در حال پریدن",
    "he": "כלב שחור רץ על הדשא",
    "hi": "एक बच्चा सीढ़ियों पर",
    "bn": "একটি কুকুর দৌড়াচ্ছে",
    "ta": "ஒரு நாய் புல்லில்",
    "th": "เด็กปีนบันได น้ำ",
    "km": "ឆ្កែខ្មៅមួយក្បាល",
    "my": "ခွေးအနက်ရောင်တစ်ကောင်",
    "zh": "一只狗在跑",
    "ja": "黒い犬が走る",
    "ko": "검은 개가 달린다",
    "ru": "чёрная собака бежит",
    "el": "ένας μαύρος σκύλος",
    "vi": "một con chó đen chạy trên cỏ",
    "am": "ጥቁር ውሻ በሣር ላይ",
}
BY_LANGUAGE = pytest.mark.parametrize(("language", "text"), CAPTIONS.items(), ids=CAPTIONS)


def drawn(text: str, style=lettering.PLAIN) -> bytes:
    """The pixels of a text."""
    sheet = Image.new("RGB", (300, 30), lettering.PAPER)
    lettering.write_text(ImageDraw.Draw(sheet), (4, 4), text, 16, style)
    return np.asarray(sheet).tobytes()


@pytest.fixture
def use_fonts(monkeypatch):
    """A function that gives the system other fonts."""

    def use(*faces: lettering.Face) -> None:
        monkeypatch.setattr(lettering, "system_faces", lambda: faces)
        for cached in (lettering.ordered_faces, lettering.face_of):
            cached.cache_clear()

    yield use
    monkeypatch.undo()
    use(*lettering.system_faces())


@BY_LANGUAGE
def test_captions_are_drawn_shaped_or_a_sentence_names_their_letters(language, text):
    style = lettering_of(text, language)
    try:
        require_fonts(text, style)
    except MissingFontError:
        pytest.skip("needs fonts-noto-core, fonts-noto-cjk and Raqm")
    face = lettering.face_of(text, style.language)
    assert all(lettering.has_glyph(face, char) for char in text)
    assert min(drawn(text, style)) < 60
    assert style.right_to_left == (language in ("ar", "fa", "he"))


@BY_LANGUAGE
def test_without_fonts_a_sentence_names_letters_and_package(use_fonts, language, text):
    use_fonts()
    with pytest.raises(MissingFontError, match="No font .* has the letters .*fonts-noto") as error:
        drawn(text, lettering_of(text, language))
    letters = [part for part in clusters(text) if ord(part[0]) > 0xFF]
    assert letters[0] in str(error.value) and "?" not in str(error.value)
    with pytest.raises(MissingFontError):
        lettering.text_width(text, 16)


def test_without_raqm_letters_that_it_joins_are_a_sentence(monkeypatch):
    monkeypatch.setattr(features, "check", lambda _: False)
    monkeypatch.setattr(lettering, "has_glyph", lambda *_: True)
    lettering.face_of.cache_clear()
    for language in ("ar", "fa", "he", "hi", "bn", "ta", "th", "km", "my"):
        with pytest.raises(MissingFontError, match="no Raqm: install FriBidi .*libfribidi0"):
            require_fonts(CAPTIONS[language], lettering_of(CAPTIONS[language], language))
    for language in ("zh", "ja", "ko", "ru", "vi", "am"):
        require_fonts(CAPTIONS[language])
    lettering.face_of.cache_clear()


@pytest.mark.parametrize(
    ("language", "family"),
    [("zh", "SC"), ("zh-Hant", "TC"), ("zh-HK", "HK"), ("ja", "JP"), ("ko", "KR"), ("en", "SC")],
)
def test_chinese_characters_take_the_forms_of_the_language(use_fonts, language, family):
    faces = [
        lettering.Face(f"Noto Sans CJK {f}", "Regular", f) for f in ("JP", "KR", "SC", "TC", "HK")
    ]
    use_fonts(lettering.Face("Serif", "Bold", "b"), *faces)
    style = lettering_of("一只狗", language)  # en: the letters themselves say zh
    assert lettering.ordered_faces(style.language)[1].path == family


def test_fonts_are_found_in_folders(monkeypatch, tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "own.ttf").write_bytes(ImageFont.load_default(16).font_bytes)
    (tmp_path / "broken.ttf").write_text("no font")
    monkeypatch.setattr(lettering, "FOLDERS", (str(tmp_path), "$NOWHERE/Fonts"))
    (face,) = lettering.system_faces.__wrapped__()
    assert Path(face.path).name == "own.ttf" and face.style == "Regular"


@pytest.mark.parametrize("text", ["a title of words", "one " + "w" * 60])
def test_lines_fit_their_width_and_keep_every_character(text):
    lines = lettering.wrap(text, 16, 120)
    assert all(lettering.text_width(line, 16) <= 120 for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_letters_keep_their_marks():
    assert clusters("क्षि न้ำ") == ["क्षि", " ", "न้ำ"]
    assert clusters("நாய் e\u0301") == ["நா", "ய்", " ", "\u00e9"]
