"""Every form of caption file gives the same records, and says where it is broken."""

from pathlib import Path

import pytest

from tests.training.data.sources import caption_forms
from tests.training.data.sources.caption_forms import records_of
from training.data.examples import DataError
from training.data.sources.caption_files.records import Record

DOG = "tiere/Hündin 1.jpg"
WANTED = [
    (DOG, ("Ein Hund, müde", 'Sie sagt "nein" 🐕'), "train"),
    ("b.png", ("两只狗在跑",), "dev"),
]
CSV = (
    "image,caption,split\r\n"
    'tiere/Hündin 1.jpg,"Ein Hund,\r\nmüde",train\r\n'
    "\r\n"
    ",,\r\n"
    'b.png,"两只狗在跑",val\r\n'
    'tiere/Hündin 1.jpg,"Sie\tsagt ""nein""  🐕",Train\r\n'
)
JSONL = [
    {"image": DOG, "captions": ["Ein Hund,\nmüde", 'Sie sagt\t"nein" 🐕', " "], "split": "train"},
    {"image": "b.png", "captions": ["两只狗在跑"], "split": "val", "source": "anything"},
]
COCO = {
    "info": {},
    "images": [{"id": 7, "file_name": DOG, "width": 3}, {"id": "b", "file_name": "b.png"}],
    "annotations": [
        {"id": 1, "image_id": 7, "caption": "Ein Hund, müde"},
        {"id": 2, "image_id": "b", "caption": "两只狗在跑"},
        {"id": 3, "image_id": 7, "caption": 'Sie sagt "nein" 🐕'},
    ],
}
KARPATHY = {
    "dataset": "own",
    "images": [
        {
            "filepath": "tiere",
            "filename": "Hündin 1.jpg",
            "sentences": [{"raw": "Ein Hund, müde", "tokens": []}, {"raw": 'Sie sagt "nein" 🐕'}],
            "split": "restval",
        },
        {"filename": "b.png", "sentences": [{"raw": "两只狗在跑"}], "split": "val"},
    ],
}


def write(folder: Path, name: str, content) -> Path:
    """Writes one file; see `caption_forms`."""
    return caption_forms.write(folder, {name: content}) / name


def coco(images: list[dict], annotations: list[dict]) -> dict:
    return {"images": images, "annotations": annotations}


def gathered(records: tuple[Record, ...]) -> list[tuple]:
    """Image, captions and split, one an image."""
    captions: dict[str, tuple[str, ...]] = {}
    for record in records:
        captions[record.image] = captions.get(record.image, ()) + record.captions
    splits = {record.image: record.split for record in records}
    return [(image, texts, splits[image]) for image, texts in captions.items()]


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("c.csv", CSV),
        ("c.CSV", CSV.replace("\r\n", "\n")),
        ("c.jsonl", JSONL),
        ("c.json", KARPATHY),
    ],
)
def test_every_form_gives_the_same_records(tmp_path, name, content, mark):
    path = write(tmp_path, name, content)
    path.write_text(mark + path.read_text("utf-8"), "utf-8")
    assert gathered(records_of(path)) == WANTED


def test_coco_may_name_splits_or_not(tmp_path):
    records = records_of(write(tmp_path, "c.json", COCO))
    assert gathered(records) == [(image, texts, None) for image, texts, _ in WANTED]
    content = {"images": [{"id": 0, "file_name": "a.jpg", "split": "test"}]}
    content["annotations"] = [{"image_id": 0, "caption": "A door."}]
    (record,) = records_of(write(tmp_path, "c.json", content))
    assert record.split == "test"


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_a_spreadsheet_may_write_other_separators(tmp_path, delimiter):
    text = f'Image {delimiter}"Caption"\na.jpg{delimiter}one, two\n'
    assert gathered(records_of(write(tmp_path, "c.csv", text))) == [("a.jpg", ("one, two",), None)]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("c.csv", "image,caption,image\na,b,c\n", "line 1: two columns of the header have the"),
        ("c.csv", "", r"line 1: expected the header.*got \[\]"),
        ("c.csv", "image,caption\n", "holds no image"),
        ("c.csv", 'image,caption\na,"b\nc"\nd,e,f\n', r"line 4: expected 2 fields, got 3 .*quotes"),
        ("c.csv", 'image,caption\na,b\nc,"d\ne\n', "line 3: not CSV .*quote"),
        ("c.csv", 'image,caption\na,"b" c\n', "line 2: not CSV"),
        ("c.csv", "image,caption\n ,b\n", "line 2: the name of the image is empty"),
        ("c.csv", "image,caption,split\na,b,both\n", "line 2: expected the split train.*'both'"),
        ("c.csv", b"image,caption\na,b\nc,M\xfcnchen\n", "line 3: not UTF-8.* try `iconv"),
        ("c.jsonl", '{"image": "a", "captions": []}\n\n{"image"\n', "line 3: not JSON .*column 9"),
        ("c.jsonl", '["a"]', 'line 1: expected {"image"'),
        ("c.jsonl", '{"image": true, "captions": []}', "line 1: expected 'image', a text, got Tr"),
        ("c.jsonl", '{"image": "a", "captions": [1]}', "line 1: expected 'caption', a text, got 1"),
        ("c.jsonl", r'{"image": "a", "captions": ["\ud83d"]}', "line 1: half a character"),
        ("c.jsonl", r'{"image": "a\udc00", "captions": []}', "line 1: half a character .* name"),
        ("c.json", '{"images": [\n1,\n}', "line 3: not JSON"),
        ("c.json", "[1]", "the whole file: expected a list of .*COCO.*, got .1"),
        ("c.json", '{"images": 3}', "the whole file: expected 'images', a list, got 3"),
        ("c.json", {"images": [{"filename": "a"}]}, r"images\[0\].*: no column holds captions"),
        (
            "c.json",
            {"images": [{"filename": "a", "sentences": [{"raw": "b"}, {}]}]},
            r"images\[0\].sentences\[1\]: expected 'raw', a text, got None",
        ),
        ("c.json", coco([], [{"image_id": 1, "caption": "a"}]), r"ons\[0\]: no image has the id 1"),
        ("c.json", coco([{"id": 1}] * 2, []), r"images\[1\]: a second image with the id 1"),
        (
            "c.json",
            coco([{"id": 1, "file_name": "a"}], [{"image_id": 1}]),
            r"annotations\[0\]: expected 'caption', a text or a list, got None",
        ),
        ("c.doc", "", r"expected a file named \*.csv, .* \*.txt. If c.doc is a table .*, rename"),
        ("c.xlsx", b"PK", "expected a file named .* c.xlsx is a spreadsheet: save it as CSV"),
    ],
)
def test_what_does_not_parse_is_an_error_with_file_and_place(tmp_path, name, content, message):
    with pytest.raises(DataError, match=f"{name}.*{message}"):
        records_of(write(tmp_path, name, content))


@pytest.mark.parametrize(
    ("delimiter", "rows", "line", "swallowed"),
    [
        # The mark opens in line 3 and is closed by one at the end of a caption further down.
        (",", 'a.jpg,one\nb.jpg,"two\nc.jpg,three\nd.jpg,says stop"\n', 3, 4),
        (";", 'a.jpg;one\nb.jpg;"two\nc.jpg;three, four\nd.jpg;says stop"\n', 3, 4),
        ("\t", 'a.jpg\tone\nb.jpg\t"two\nc.jpg\tthree\nd.jpg\tsays stop"\n', 3, 4),
        # One row only; a name without a suffix, known from another row or beside a tab.
        (",", 'a.jpg,one\nb.jpg,"two\nc.jpg,stop"\n', 3, 4),
        (",", 'c,one\nb,"two\nc,stop"\n', 3, 4),
        ("\t", 'b\t"two\nc\tstop"\n', 2, 3),
        # The mark is before the name; other line ends; a field of two lines before it.
        (",", 'a.jpg,one\n"b.jpg,two\nc.jpg,three",four\n', 3, 4),
        (",", 'a.jpg,one\r\nb.jpg,"two\r\nc.jpg,stop"\r\n', 3, 4),
        (",", '"a\nb.jpg","two\nc.jpg,stop"\n', 3, 4),
        # More fields than columns.
        (",", 'a.jpg,one\nb.jpg,"two\nc.jpg,stop",now\n', 3, 4),
    ],
)
def test_a_mark_that_is_not_closed_swallows_no_rows(tmp_path, delimiter, rows, line, swallowed):
    path = write(tmp_path, "c.csv", f"image{delimiter}caption\n{rows}")
    with pytest.raises(DataError, match=f"c.csv, line {line}: .* not closed .*line {swallowed}, "):
        records_of(path)


def test_a_mark_that_is_not_closed_swallows_no_rows_if_the_image_comes_last(tmp_path):
    text = 'split,caption,image\ntrain,one,a.jpg\ndev,"two,b.jpg\ntest,three stop",c.jpg\n'
    with pytest.raises(DataError, match="line 3: .* not closed .*line 4, "):
        records_of(write(tmp_path, "c.csv", text))
    text = 'caption,image\n"two,\nof many, in lines",a.jpg\n'
    assert gathered(records_of(write(tmp_path, "c.csv", text))) == [
        ("a.jpg", ("two, of many, in lines",), None)
    ]


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(DataError, match="none.csv cannot be read"):
        records_of(tmp_path / "none.csv")
