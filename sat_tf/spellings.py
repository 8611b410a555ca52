"""Forms of the same text that people write, and the one that tokens have.

What a keyboard lacks is written by what looks alike, and encodings have had several forms.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Mapping

from sat_tf.joining import UNSPACED

_DOTS = "\u00b7\u2022\u2027\u2219\u22c5\u30fb\u318d"
_EAST = f"[{UNSPACED}\uac00-\ud7a3]"
_EVERYWHERE = (
    ("(?<=l)[\u2022\u2219\u2027\u22c5](?=l)", "\u00b7"),  # the Catalan dot
    # Thai and Lao: sara ae and sara am; ho leading n and m.
    ("\u0e40\u0e40", "\u0e41"),
    ("\u0e4d([\u0e48-\u0e4b]?)\u0e32", "\\1\u0e33"),
    ("\u0ecd([\u0ec8-\u0ecb]?)\u0eb2", "\\1\u0eb3"),
    ("\u0ec0\u0ec0", "\u0ec1"),
    ("\u0eab\u0e99", "\u0edc"),
    ("\u0eab\u0ea1", "\u0edd"),
    # Signs of repetition.
    ("(?<=[\u0e01-\u0ecd\u1780-\u17d3]) ([\u0e2f\u0e46\u0ec6\u17d7])", r"\1"),
    ("([\u200c\u200d])[\u200c\u200d]+", r"\1"),
    # Indic: the eyelash ra of Marathi, other half letters, ra with ya in Bengali, a colon for
    # visarga, letters of their own in Bengali and Malayalam, nta and au in Malayalam, Tamil sri.
    ("\u0930\u094d\u200d", "\u0931\u094d"),
    ("(?<=[\u094d\u0a4d\u0acd\u0b4d])\u200d", ""),
    ("\u09b0\u200c(?=\u09cd\u09af)", "\u09b0\u200d"),
    ("(?<=[\u0900-\u0963]):(?=[\u0904-\u0939])", "\u0903"),
    ("(?<=[\u0980-\u09e3]):(?=[\u0985-\u09b9])", "\u0983"),
    ("\u09a4\u09cd\u200d", "\u09ce"),
    ("\u0d23\u0d4d\u200d", "\u0d7a"),
    ("\u0d28\u0d4d\u200d", "\u0d7b"),
    ("\u0d30\u0d4d\u200d", "\u0d7c"),
    ("\u0d32\u0d4d\u200d", "\u0d7d"),
    ("\u0d33\u0d4d\u200d", "\u0d7e"),
    ("\u0d15\u0d4d\u200d", "\u0d7f"),
    ("\u0d7b\u0d4d?(?=\u0d31)", "\u0d28\u0d4d"),
    ("\u0d4c", "\u0d57"),
    ("\u0bb8(?=\u0bcd\u0bb0\u0bc0)", "\u0bb6"),
    # Khmer: subscript da and ta, vowels in two parts. Burmese: nya, and digits for letters.
    ("(?<!\u178e)\u17d2\u178a", "\u17d2\u178f"),
    ("\u178e\u17d2\u178f", "\u178e\u17d2\u178a"),
    ("\u17c1\u17b8", "\u17be"),
    ("\u17c1\u17b6", "\u17c4"),
    ("\u1025(?=[\u1039\u103a])", "\u1009"),
    ("(?<![\u1040-\u1049.,])\u1040(?=[\u1000-\u103e])", "\u101d"),
    ("\u1044(?=\u1004\u103a\u1038)", "\u104e"),
    # Signs of numbers and units.
    ("\u2212(?=[.]?[0-9])|(?<!\\S)\u2013(?=\\d)", "-"),
    ("(?<=\\d)[\u2012\u2013~\u301c\uff5e](?=\\d)", "-"),
    ("(?<=\\d)\u00d7(?=\\d)", "x"),
    ("(?<=\\d)[\u1361\u2236](?=\\d)", ":"),
    ("(?<=\\d)\u060c(?=\\d)", ","),
    ("(?<=\\d)\u06d4(?=\\d)", "."),
    ("(?<=\\d)\u060d(?=\\d)", "/"),
    ("(?<=\\d)\\.(?=[\u00aa\u00ba])", ""),
    ("(?<=\\d)\u00ba(?=[CFcf]\\b)|(?<= )\u00ba(?=[CFcf]\\b)", "\u00b0"),
    ("(?<![^\\W_])n\\.?[\u00b0\u00ba](?![^\\W\\d])", "n\u00ba"),
    ("(?<=[^\\W\\d_])\u00b2", "2"),
    ("(?<=[^\\W\\d_])\u00b3", "3"),
    ("([ij\u012f]\u0328?)\u0307", r"\1"),
)
_TRIGGERS = re.compile(
    "[:\u00aa\u00b0\u00b2\u00b3\u00b7\u00ba\u00d7\u0307\u060c\u060d\u06d4\u0bb8\u0d4c\u0d7b\u0e2f\u0e40\u0e46\u0e4d\u0eab\u0ec0\u0ec6"
    "\u0ecd\u1025\u1040\u1044\u1361\u178a\u178f\u17c1\u17d7\u200c\u200d\u2012\u2013\u2022\u2027\u2212\u2219\u2236\u22c5\u301c\u30fb\u318d\uff5e~]"
)
"""Signs of these patterns: a text that a pattern changes has a sign that the pattern names."""
# Indic vowels that are typed as two signs of the same look (Unicode's tables "Vowel Letters"): the
# two and the one, hexadecimal.
_TYPED_IN_TWO = """
090509460904 0905093e0906 09090941090a 090f0945090d 090f0946090e 090f09470910 090509490911
090609450911 0905094a0912 090609460912 0905094b0913 090609470913 0905094c0914 090609480914
090509450972 093e09450949 093e0947094b 093e0948094c 098509be0986 098b09c309e0 0a050a3e0a06
0a720a3f0a07 0a720a400a08 0a730a410a09 0a730a420a0a 0a720a470a0f 0a050a480a10 0a730a4b0a13
0a050a4c0a14 0a850abe0a86 0a850ac50a8d 0a850ac70a8f 0a850ac80a90 0a850ac90a91 0a850acb0a93
0a850acc0a94 0ac50abe0ac9 0b050b3e0b06 0b0f0b570b10 0b130b570b14 0b2f0b3c0b5f 0b850bc20b86
0c890cbe0c8a 0c920ccc0c94 0d070d570d08 0d090d570d0a 0d0e0d460d10 0d120d3e0d13 0d120d570d14
0d850dcf0d86 0d850dd00d87 0d850dd10d88 0d910dca0d92
"""
_VOWELS = {
    chr(int(codes[:4], 16)) + chr(int(codes[4:8], 16)): chr(int(codes[8:], 16))
    for codes in _TYPED_IN_TWO.split()
}
_IN_TWO = re.compile("[{}][{}]".format(*("".join({*some}) for some in zip(*_VOWELS, strict=True))))
_CYRILLIC = re.compile("[\u0400-\u052f]")
_ORDINAL = (r"(?<=\d)\.?\u00b0(?! ?[CFcf]\b)", "\u00ba")
_PALOCHKA = (
    "(?<=[\u0400-\u052f])[I1l|\u0406\u0456i]|(?<!\\w)[I1l|\u0406\u0456i](?=[\u0430-\u044f])",
    "\u04cf",
)
_NAMES = f"(?<={_EAST})[{_DOTS}](?={_EAST})"
_IN_LANGUAGE = {
    **dict.fromkeys(("it", "es", "pt", "gl"), [_ORDINAL]),
    "ca": [_ORDINAL, (r"(?<=[Ll])\.(?=[Ll])", "\u00b7")],
    **dict.fromkeys(("ce", "inh", "av", "ady", "kbd", "lez", "dar", "lbe", "abq"), [_PALOCHKA]),
    "el": [("\u00b7", " ")],  # its semicolon
    "yo": [("\u0329", "\u0323")],
    **dict.fromkeys(("ckb", "ku"), [("\u0647\u200c", "\u06d5"), ("\u06be", "\u0647")]),
}
_TONE = re.compile(
    "((?<!q)u(?=y)|o(?=[ae]))([aey])([\u0300\u0301\u0303\u0309\u0323])(?![\\w\u0300-\u036f])"
)
"""A Vietnamese tone at the end of oa, oe, uy, which others write on their first letter."""
_PERSIAN = {"\u064a": "\u06cc", "\u0643": "\u06a9"}
_URDU = _PERSIAN | {"\u0647": "\u06c1", "\u06c0": "\u06c2"}
_LETTERS = {
    "fa": _PERSIAN | {"\u06c0": "\u0647\u0654"},
    **dict.fromkeys(("ur", "pnb", "skr"), _URDU),
    **dict.fromkeys(("ckb", "ku"), _PERSIAN | {"\u0649": "\u06cc"}),
    "ps": {"\u0643": "\u06a9"},
    **dict.fromkeys(
        ("yi", "he"), {"\u05f0": "\u05d5" * 2, "\u05f1": "\u05d5\u05d9", "\u05f2": "\u05d9" * 2}
    ),
    "vi": {"\u00f0": "\u0111", "\u0256": "\u0111"},
    **dict.fromkeys(("hr", "sr", "bs", "sh"), {"\u00f0": "\u0111", "\u00d0": "\u0110"}),
    "mn": {"\u0454": "\u04e9", "\u0457": "\u04af"},
    "ro": {"\u015f": "\u0219", "\u0163": "\u021b", "\u015e": "\u0218", "\u0162": "\u021a"},
    "az": {"\u01dd": "\u0259", "\u018e": "\u018f"},
    "cv": dict(zip("\u0103\u0115\u00e7\u00ff", "\u04d1\u04d7\u04ab\u04f3", strict=True)),
    "os": {"\u00e6": "\u04d5", "\u00c6": "\u04d4"},
    **dict.fromkeys(("ak", "tw", "ee", "gaa"), {"\u03b5": "\u025b", "\u037b": "\u0254"}),
}
_BRITISH = (
    (re.compile(r"(?<=\w{3})our(?=$|s$|ed$|ing$|ful$|ite$|ites$|hood$)"), "or"),
    (re.compile(r"(?<=\w{2}[btst])re(?=s?$)"), "er"),
    (re.compile(r"(?<=\w{3})is(?=e$|es$|ed$|ing$)"), "iz"),
    (re.compile(r"(?<=\w{3}e)ll(?=ed$|ing$|ers?$)"), "l"),
    (re.compile(r"^grey(?=$|s$|ish$)"), "gray"),
    (
        re.compile(r"^(?:py(?=jama)|mou(?=stache))"),
        lambda found: {"py": "pa", "mou": "mu"}[found[0]],
    ),
)


def both_spellings(words: Mapping[str, int]) -> list[tuple[str, str]]:
    """Lists British words whose American form is there, too, the commonest pairs first.

    Args:
        words: English words in small letters, and how often each occurs.
    """
    found = []
    for word in words:
        for pattern, instead in _BRITISH:
            other = pattern.sub(instead, word)
            if other != word and other in words:
                found.append((word, other))
    return sorted(found, key=lambda pair: -min(words[one] for one in pair))


def respelled(text: str, language: str) -> str:
    """Returns a text in which other spellings of the same have one form.

    Args:
        text: Any text, in small letters unless capitals are to stay.
        language: Primary subtag of its language.
    """
    everywhere, special, letters = _rules(language)
    if "\u2116" in text and not _CYRILLIC.search(text):  # where people write No., too
        text = text.replace("\u2116", "no")
    there = {*_TRIGGERS.findall(text)}
    for needed, pattern, replacement in everywhere if there else ():
        if not needed.isdisjoint(there):
            text = pattern.sub(replacement, text)
            there.update(replacement)
    text = _IN_TWO.sub(lambda found: _VOWELS.get(found[0], found[0]), text)
    for pattern, replacement in special:
        text = pattern.sub(replacement, text)
    if language == "vi":
        text = _TONE.sub(r"\1\3\2", unicodedata.normalize("NFD", text))
    return text.translate(letters) if letters else text


@functools.cache
def _rules(language: str) -> tuple[list, list, dict[int, str]]:
    """Returns patterns with their triggers and replacements, those of the language, and letters."""
    names = (_NAMES, "\u30fb" if language == "ja" else "\u00b7")
    everywhere = [
        ({*_TRIGGERS.findall(pattern)}, re.compile(pattern), replacement)
        for pattern, replacement in (*_EVERYWHERE, names)
    ]
    special = [(re.compile(p), replacement) for p, replacement in _IN_LANGUAGE.get(language, ())]
    return everywhere, special, str.maketrans(_LETTERS.get(language, {}))
