"""Words of English captions, as Stanford's PTB tokeniser (CoreNLP 3.4.1) finds them.

At each place the longest of its patterns, with its lookahead, makes the next token; of
two as long the earlier one. docs/metrics.md lists the exceptions.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator

_NUMERALS = (
    "\u00b2\u00b3\u00b9\u00bc-\u00be\u2070\u2074-\u207e\u2080-\u208e\u2150-\u218b\u2460-\u249b"
    "\u24ea-\u24ff\u2776-\u2793"
)
_LETTER = rf"(?:[^\W\d_{_NUMERALS}][\u02c2-\u036f\u00ad]*)"
_ALNUM = rf"(?:[^\W_{_NUMERALS}][\u02c2-\u036f\u00ad]*)"
_A = "['\u0092\u2019]"
_END = "(?: |$)"
_PARTICLES = f"(?:[dDoOlL]{_A}(?={_LETTER}{{2}}))?"
_WORD = rf"{_LETTER}{_ALNUM}*(?:[.!?]{_LETTER}{_ALNUM}*)*"
_THING = rf"{_PARTICLES}{_ALNUM}+(?:[_-]{_PARTICLES}{_ALNUM}+)*"
_NUMBER = "[0-9]*(?:[.:,][0-9]+)+|[0-9]+"
_SLASHED = "[A-Za-z0-9]+(?:-[A-Za-z]+){0,2}"
_AUXILIARY = f"{_A}(?:[msdMSD]|[rR][eE]|[vV][eE]|[lL][lL])"
_NOT = f"[nN]{_A}[tT]"
_ANYWHERE = r"[^\s\"<>|()]"
_WITH_APOSTROPHE = (
    f"{_A}n{_A}?|[lLdDjJ]{_A}|[dD]unkin{_A}|[sS]omethin{_A}|[oO]l{_A}|{_A}[eE]m|[cC]{_A}mon|{_A}[2-9]0s|"
    f"{_A}till?|{_A}[cC]ause|[oOeE]{_A}er|[nN]e{_A}er|[mM]a{_A}am|[nN]or{_A}easter|[sS]{_A}mores|"
    f"[eE]v{_A}ry|[lL]i{_A}l|[nN]at{_A}l|[cC]ont{_A}d|[cC]ap{_A}n|[A-HJ-XZn]{_A}{_LETTER}{{2,}}|"
    f"{_LETTER}+[aeiouyAEIOUY]{_A}[aeiouA-Z]{_LETTER}*"
)
# Abbreviations keep their full stop, and a sentence that ends with one gets a second.
_MONTHS = "jan feb mar apr jun jul aug sep sept oct nov dec mon tue tues wed thu thurs fri"
_PLACES = (
    "ala ariz calif colo conn ct dak fla ga ind kan kans ky md mich minn mo mont neb nev okla penn "
    "tenn va vt wis wisc wyo"
)
_PLACES_WITH_CAPITALS = "Az Ark Del Ill La Mass Miss Ore Pa Tex Wash"  # others are words, too
_NAMES = (
    "inc co cos corp pty ptys pte ltd plc rt bancorp dept bhd assn univ intl sys jr sr bros ed\\.d "
    "ph\\.d ph blvd rd esq etc al seq alex wm jos tel est ext sq mtg"
)
_TITLES = (
    "mr mrs ms dr drs prof profs sen sens rep reps atty attys lt col gen messrs gov govs adm rev "
    "maj sgt cpl pvt capt st ste ave pres lieut hon brig comdr cmdr pfc spc supt supts det mt ft "
    "adj adv asst assoc ens insp mlle mme msgr sfc vs v cf"
)
_BEFORE_NUMBERS = "ca c fig figs prop no nos art bldg pp op"
_FILES = (
    "bat bmp c class cgi cpp dll doc docx exe gif gz h htm html jar java jpeg jpg mov mp3 pdf php "
    "pl png ppt ps py sql tar txt wav x xml zip wmv"
)
_STARTERS = (
    "A About According Additionally After An And As At But Earlier For He However If In It Last "
    "Many More Mr\\. Ms\\. Now Once One Other Our She Since So Some Such That The Their Then There "
    "These They This We When While What Yet You"
)


def _any(words: str) -> str:
    return f"(?:{'|'.join(sorted(words.split(), key=len, reverse=True))})"


_ACRONYM = r"[A-Za-z](?:\.[A-Za-z])*\."
_SPLIT = {"cannot", "gonna", "gotta", "lemme", "gimme", "wanna"}
_CURRENCY = {"\u00a3": "#", "\u20ac": "$", "\u00a4": "$", "\u00a2": "cents"}
_FORMS = {
    **{"\u00bc": "1/4", "\u00bd": "1/2", "\u00be": "3/4", "\u2153": "1/3", "\u2154": "2/3"},
    **{"(": "-lrb-", ")": "-rrb-", "[": "-lsb-", "]": "-rsb-", "{": "-lcb-", "}": "-rcb-"},
    **dict.fromkeys("\u2026\u0085", "..."),
    **dict.fromkeys("\u2012\u2013\u2014\u2015", "--"),
    **dict.fromkeys("\u201c\u00ab", "``"),
    **dict.fromkeys("\u201d\u00bb", "''"),
    **dict.fromkeys("\u2018\u2039", "`"),
    **dict.fromkeys("\u2019\u203a\u0092", "'"),
    **_CURRENCY,
}
_ENTITIES = {"&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": "''", "&apos;": "'", "&nbsp;": ""}


def _as_is(text: str) -> list[str]:
    return [text]


def _form(text: str) -> list[str]:
    return [_FORMS[text]]


def _straight(text: str) -> list[str]:
    return [re.sub(_A, "'", text)]


def _bracketed(text: str) -> list[str]:
    return [text.replace("(", "-lrb-").replace(")", "-rrb-")]


_DIGITS2 = "[0-9]{2,4}"
# A token is the first group of its pattern, all of it if there is none.
_RULES: list[tuple[re.Pattern[str], Callable[[str], list[str]]]] = [
    (re.compile(pattern), action)
    for pattern, action in (
        ("<[!?][A-Za-z-][^>]{0,400}>", _as_is),
        (r"</?[A-Za-z][A-Za-z0-9_:.-]*(?: +[^<>]{0,400}?)?/?>", _as_is),
        ("&#[0-9]+;|(?i:-[lr][rsc]b-)", _as_is),
        ("&(?:amp|lt|gt|quot|apos|nbsp);", lambda text: [_ENTITIES[text]]),
        (f"(?i:{'|'.join(sorted(_SPLIT))})", lambda text: [text[:3], text[3:]]),
        ("('[tT])(?i:is|was)", _as_is),
        (f"({_WORD}){_AUXILIARY}", _as_is),
        (f"([A-Za-z]*[A-MO-Za-mo-z]){_NOT}", _as_is),
        (f"{_NOT}", _straight),
        (_WITH_APOSTROPHE, _as_is),
        (f"([yY]{_A}){_LETTER}", _straight),
        (rf"(?:https?|ftp)://{_ANYWHERE}+[^\s\"<>|.!?(){{}},-]", _as_is),
        (
            r"(?:www\.(?:[^\s\"<>|.!?(){},]+\.)+[a-zA-Z]{2,4}|"
            r"(?:[^\s\"`'<>|.!?(){},_$-]+\.)+(?:com|net|org|edu))"
            rf"(?:/{_ANYWHERE}+[^\s\"<>|.!?(){{}},-])?",
            _as_is,
        ),
        (rf"[a-zA-Z0-9]{_ANYWHERE}*@(?:[^\s\"<>|().]+\.)*[^\s\"<>|().]+", _as_is),
        (rf"@[A-Za-z][A-Za-z0-9_]*|#{_LETTER}+", _as_is),
        (f"({_AUXILIARY})(?:[^A-Za-z]|$)", _straight),
        ("[0-9]{1,2}[-/][0-9]{1,2}[-/][0-9]{2,4}", _as_is),
        (f"[-+]?(?:{_NUMBER})", _as_is),
        (
            "[\u207a\u207b]?[\u2070\u2074-\u2079\u00b9\u00b2\u00b3]+|[\u208a\u208b]?[\u2080-\u2089]+",
            _as_is,
        ),
        ("(?:[0-9]{1,4}[- ])?[0-9]{1,4}[/\u2044][0-9]{1,4}", _as_is),
        ("[\u00bc-\u00be\u2153\u2154]", _form),
        (f"{_SLASHED}(?:/{_SLASHED}){{1,2}}", _as_is),
        (r"[A-Z]*\$|#", _as_is),
        ("[\u00a3\u20ac\u00a4\u00a2]", _form),
        (rf"((?i:{_any(_BEFORE_NUMBERS)})\.) ?[0-9]", _as_is),
        (rf"(?i:{_any(f'{_MONTHS} {_PLACES} {_NAMES} {_TITLES}')})\.", _as_is),
        (rf"{_any(_PLACES_WITH_CAPITALS)}\.", _as_is),
        (rf"([A-Za-z]\.) +{_any(_STARTERS)}{_END}", lambda text: [text[:-1], "."]),
        (_ACRONYM, _as_is),
        (f"({_A}[0-9][0-9]){_END}", _as_is),
        (_WORD, _as_is),
        (rf"({_ALNUM}+(?:\.{_ALNUM}+)*\.{_any(_FILES)})(?:[ .?!,]|$)", _as_is),
        (r"([A-Za-z0-9][A-Za-z0-9.,]*(?:-[A-Za-z0-9]+)+)(?=[^a-zA-Z0-9.+]|$)", _as_is),
        (_THING, _as_is),
        ("[A-Z]+(?:(?:[+&]|&amp;)[A-Z]+)+", lambda text: [text.replace("&amp;", "&")]),
        ("[cC]\\+\\+|[cCfF]#", _as_is),
        (r"[<>]?[:;=][\-o*']?[()DPdpO\\{@|\[\]](?=[^A-Za-z0-9]|$)", _bracketed),
        (r"[\^x=~<>]\.[\^x=~<>]|[\-\^x=~<>']_[\-\^x=~<>']", _as_is),
        ('(")[A-Za-z0-9$]', lambda _: ["``"]),
        ('"', lambda _: ["''"]),
        (r"(')[A-Za-z][^\s]", lambda _: ["`"]),
        ("[\u201c\u201d\u00ab\u00bb\u2018\u2019\u2039\u203a\u0092]", _form),
        ("''|``", _as_is),
        (
            rf"(?:\([0-9]{{2,3}}\) ?|(?:\+\+?)?(?:{_DIGITS2}[- ])?{_DIGITS2}[- ])"
            r"[0-9]{3,4}[- ]?[0-9]{3,5}|"
            rf"(?:(?:\+\+?)?{_DIGITS2}\.)?{_DIGITS2}\.[0-9]{{3,4}}\.[0-9]{{3,5}}",
            _bracketed,
        ),
        (r"\.{3,5}|(?:\. ){2,4}\.|[\u2026\u0085]", lambda _: ["..."]),
        ("-{2,4}|[\u2012-\u2015]", lambda _: ["--"]),
        (r"-{5,}|\*+|_+|#{2,}|@{2,}|[?!]+", _as_is),
        (r"[()\[\]{}]", _form),
        (
            "[-.,;:'`&%+/=<>~|^\\\\@\u00a1-\u00bf\u00d7\u00f7\u02c6\u02dc\u2020-\u2023\u2030-\u2037\u201a\u201e"
            "\u2100-\u214f\u2153-\u215f\u2190-\u2bff\u3000-\u303f\u2200-\u22ff\uff00-\uff0f]",
            _as_is,
        ),
    )
]
_WHOLE = re.compile("([A-Za-z]+|[.,])(?: |$)")  # what most captions consist of
_LONG = re.compile(r"(\S{200})(?=\S)")  # longer ones are cut, as patterns look ahead
_WIDE = re.compile("[\ufb00-\ufb06\uff01-\uffee]+")
_ASCII_SIGNS = str.maketrans("\u2010\u2011\u00b4\u02bc\u2032\u0130", "--'''I")
_RANGE = re.compile(r"(?<=\d)[\u2012\u2013\u2212](?=\d)")
PUNCTUATION = {*"'`.?!,:-;", "''", "``", "--", "...", "-LRB-", "-RRB-", "-LCB-", "-RCB-"}
"""Tokens that pycocoevalcap drops; it misses the brackets, which are in small letters by then."""


def plain_forms(text: str) -> str:
    """Returns a text as tools for English know it: composed letters, usual widths, ASCII signs."""
    if text.isascii():
        return text
    text = unicodedata.normalize("NFC", text).translate(_ASCII_SIGNS)
    text = _WIDE.sub(lambda found: unicodedata.normalize("NFKC", found[0]), text)
    return _RANGE.sub("-", text)


def split_words(text: str) -> list[str]:
    """Splits an English text into words in small letters, without most punctuation."""
    words = []
    text = " ".join(_LONG.sub(r"\1 ", text).split())
    for token in _tokens(text):
        words += [word for word in token.lower().split() if word not in PUNCTUATION]
    return words


def _tokens(text: str) -> Iterator[str]:
    place = 0
    while place < len(text):
        if text[place] == " ":
            place += 1
            continue
        whole = _WHOLE.match(text, place)
        if whole and whole[1].lower() not in _SPLIT and not text.startswith(". .", place):
            place = whole.end()
            yield whole[1]
            continue
        best, action, token = place, None, ""
        for pattern, this in _RULES:
            found = pattern.match(text, place)
            if found and found.end() > best:
                best, action = found.end(), this
                token = found[1] if pattern.groups else found[0]
        if action is None:
            place += 1  # the program drops a sign that it does not know
            continue
        yield from action(token.replace("\u00ad", ""))
        place += len(token)
