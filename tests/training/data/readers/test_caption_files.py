"""Every form of caption file gives the same records, or is refused with what to do about it."""

from pathlib import Path

import pytest

from tests.training.data.readers import caption_forms
from tests.training.data.readers.caption_forms import (
    IMAGES,
    RECORDS,
    A,
    B,
    box_of,
    chat,
    load,
    records_of,
    table,
    tar_of,
)
from training.data.examples import DataError
from training.data.readers.caption_files.records import Record

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


def spoilt(**changes: list) -> dict:
    """COCO's form of two images, changed."""
    return caption_forms.COCO | changes


REFUSED = {
    "columns that are no names": (
        {"c.json": {"columns": [{"data": "image"}], "data": [["a.jpg", A]]}},
        r"the whole file: expected a list of records .*, got {\"columns\"",
    ),
    "images under other keys than their captions": (
        {"c.json": {"images": {"1": "a.jpg"}, "captions": {"1": A, "2": B}}},
        "the whole file: 'images' has names of images, and no captions have the same keys",
    ),
    "a number among joined captions": (
        {"c.jsonl": [{"image": "a.jpg", "captions": f"{A}|{B}"}, {"image": "b", "captions": 5}]},
        "line 2: expected 'caption', a text, got 5",
    ),
    "JSON in Latin-1 beside its image": (
        {"a.json": '{\n"caption": "\u00e9t\u00e9"}'.encode("latin-1")},
        "a.json, line 2: not UTF-8 .* try `iconv -f windows-1252",
    ),
    "captions without names, with a blank line": (
        {"c.txt": f"{A}\n\n{B}\n", "b.jpg": b""},
        rf"line 3: .*there is no image 'two', in '{B}'\.\)",
    ),
    "captions without names, beside hidden images": (
        {"c.txt": f"{A}\n{B}\n", "b.jpg": b"", "._a.jpg": b"", ".trash/c.jpg": b""},
        r"in the order of the images' names, add .*`ls \*.jpg \| paste - c.txt",
    ),
    "two absolute paths": (
        {"c.csv": table("path,caption", f"/x/a.jpg,{A}", f"/y/a.jpg,{B}")},
        "line 3: expected the path of an image .*/y/a.jpg",
    ),
    "an image in the lists of two splits": (
        {"c.token": f"a.jpg#0\t{A}\n", "train.txt": "a.jpg\n", "test.txt": "a.jpg\n"},
        "'a.jpg' is in the lists of two splits, t.*take it out",
    ),
    "questions": (
        {"c.json": [{"image_id": "a", "question": "what does it show", "question_id": 1}]},
        "no column holds captions",
    ),
    "links that expire": (
        {"rows.json": {"rows": [{"row": {"image": {"src": "https://x/image.jpg"}, "text": A}}]}},
        r"links that expire; download the data set's Parquet files .*`hf download",
    ),
    "names and captions apart": (
        {"names.txt": "a.jpg\nb.jpg\n", "texts.txt": f"{A}\n{B}\n"},
        "names.txt names images; .*`paste names.txt FILE > captions.tsv`",
    ),
    "a text file of two languages": (
        {"c.txt": table("", f"a.jpg\t{A}\t{B}")},
        "Reading them: .*columns '2' and '3' could each be the caption; choose with `--data.col",
    ),
    "images as text": (
        {"c.jsonl": [{"image": "QUJD" * 300, "caption": A}]},
        "line 1: write the image to a file, and its name here; this is not a name .an image in",
    ),
    "a test file without captions": (
        {"train.csv": table("image,caption", f"a.jpg,{A}"), "test.csv": "image\nb.jpg\n"},
        r"test.csv, line 1: .*got \['image'\]. `--data.captions train.csv` reads without it",
    ),
    "another suffix": ({"photos.tsv000": "x"}, "If photos.tsv000 is a table .* rename it to"),
    "two files of one name": (
        {"c.csv": table("image,caption", f"x/d.jpg,{A}")}
        | dict.fromkeys(("1/d.jpg", "2/d.jpg", "x/e"), b""),
        "2 have that name, such as 1/d.jpg and 2/d.jpg: name the folder too",
    ),
    "phrases of regions": (
        {"c.json": [{"image": "a.jpg", "captions": [{"phrase": A}, {"phrase": B}]}]},
        "expected a caption, or an object with one under raw, caption",
    ),
    "a title beside a longer text": (
        {"c.csv": table("image,title,story", f"a.jpg,Two dogs here,{A} {B}", f"b.jpg,A,{A} {B}!")},
        r"the columns 'title' and 'story' could each be the caption; choose",
    ),
    "columns with spaces in their names": (
        {"c.csv": table("image,text a,text b", f"a.jpg,{A},{B}", f"b.jpg,{B},{A}")},
        r"choose with `--data.columns 'caption=text a'`, or .* `'caption=text a','caption=text b'`",
    ),
    "two languages": (
        {"c.json": [{"image": "a.jpg", "captions": [A], "caption_de": [B]}]},
        "the columns 'captions' and 'caption_de' could each be the caption",
    ),
    "two columns that name images without suffix": (
        {"b.jpg": b"", "c.json": [{"target": "a", "candidate": "b", "captions": [A]}]},
        "the columns 'target' and 'candidate' could each be the image",
    ),
    "a column for each split": (
        {"c.csv": table("image,caption,train,val", f"a.jpg,{A},1,0", f"b.jpg,{B},0,1")},
        "the columns 'train', 'val' tell the split; write its name into one, called split",
    ),
    "JSON lines called txt": (
        {"c.txt": '{"image": "a.jpg"}\n'},
        r"JSON object; rename .* \*.jsonl",
    ),
    "views of one object": (
        {"c.csv": table("id,caption", f"x,{A}"), "x_1.jpg": b"", "x_2.jpg": b""},
        "images of it are x_1.jpg and x_2.jpg: write a row for each",
    ),
    "another table beside texts of images": (
        {"c.csv": "file_no\n1.txt\n", "a.txt": A},
        r"`--data.captions \.` reads the files named like the images instead",
    ),
    "Chinese that is not UTF-8": (
        {"c.csv": table("image,caption", *["a.jpg,一只狗在草地上奔跑着"] * 999).encode("gbk")},
        r"not UTF-8 .* try `iconv -f gb18030 .* shift_jis \(Japanese\)",
    ),
    "numbers that name no file": (
        {"c.json": [{"image_id": 501, "caption": A, "called": "x"}]},
        "If another column or key has the names of the files, choose it",
    ),
    "a number among COCO's images": (
        {"c.json": spoilt(images=[7])},
        r"images\[0\]: expected 'id', a number or a text, got 7",
    ),
    "numbers beside an image": ({"a.json": [1, 2]}, "1 with no captions in"),
    "captions below the names": (
        {"c.txt": f"a.jpg\n{A}\n\n"},
        r"if that is the next line, join them with `grep . c.txt \| paste - - > captions.tsv`",
    ),
    "a dump of a database": ({"c.sql": "x"}, "c.sql is not read: export its table as CSV or JSON"),
    "captions inside the images": ({}, "`exiftool -use MWG -csv -r -Description . > captions.csv`"),
    "a tar without text": (
        {"c.tar": tar_of({"0.jpg": b"A", "1.jpg": b"B"})},
        "2 images and no text; pack KEY.txt with the caption of KEY.jpg beside it, or unpack",
    ),
    "a tar with broken JSON": (
        {"c.tar": tar_of({"0.jpg": b"A", "0.json": "{"})},
        r"c.tar, 0.json: not JSON \(Expecting property name",
    ),
    "a tar with Latin-1": (
        {"c.tar": tar_of({"0.jpg": b"A", "0.txt": "\u00e9t\u00e9".encode("latin-1")})},
        "c.tar, the text of 0.jpg: not UTF-8",
    ),
    "a record without image": (
        {"c.jsonl": [RECORDS[0], {"caption": B}]},
        r"line 2: no 'image' \(write the image's name into it, or leave it out\); it has 'caption'",
    ),
    "no image column": (
        {"c.csv": table("caption,length", f"{A},5")},
        r"no column names the image; .*`--data.columns image=COLUMN`",
    ),
    "a split misspelt": (
        {"c.csv": table("image,caption,spilt", f"a.jpg,{A},train")},
        "is 'spilt' the split.*`--data.columns split=spilt`",
    ),
    "a caption broken in two": (
        {"ar.token.txt": f"a.jpg#0\t{A}\nand more of it\n"},
        "line 2: expected NAME.jpg#K.*; is it the end of line 1. Then join the two",
    ),
    "two images in a chat": (
        {"c.jsonl": [chat("a.jpg", "b.jpg")]},
        "line 1: 2 images in one chat; keep one, with its caption",
    ),
    "boxes": (
        {"c.json": spoilt(annotations=[{"image_id": 7, "bbox": [0, 0, 1, 1]}])},
        "boxes without captions; COCO's captions are in captions_.*`--data.captions`",
    ),
    "boxes with attributes": (
        {
            "c.json": caption_forms.COCO
            | {"annotations": [box_of({"colour": "red", "occluded": False})]}
        },
        "with the attributes colour; if one of .* choose it: `--data.columns caption=colour`",
    ),
    "images in a zip": (
        {"c.csv": table("image,caption", f"n.jpg,{A}"), "images.zip": b"PK"},
        "1 with no image file.*images.zip is packed: unpack it",
    ),
    "web addresses": (
        {"c.csv": table("image,caption", f"https://x.y/n.jpg,{A}")},
        "named by web addresses.*download the images into the folder",
    ),
}


def test_an_attribute_of_boxes_that_is_not_there_is_refused_with_those_that_are(tmp_path):
    boxes = [box_of({"colour": "red", "said": A})]
    folder = caption_forms.write(tmp_path, {"a.jpg": b"", "c.json": spoilt(annotations=boxes)})
    with pytest.raises(DataError, match="caption=foo`: no such attribute .* 'colour', 'said'"):
        load("train", folder, columns="caption=foo")


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_unclear_is_refused_with_advice(tmp_path, case):
    files, message = REFUSED[case]
    folder = caption_forms.write(tmp_path, {"a.jpg": b"", **files})
    with pytest.raises(DataError, match=message):
        for name in ("train", "dev", "test"):
            try:
                load(name, folder)
            except DataError as error:
                if "names no image of" not in str(error):
                    raise


def test_parquet_without_the_extra_is_refused_with_the_command(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(DataError, match=r'Parquet needs pyarrow.*pip install -e ".\[bulk\]"'):
        load("train", caption_forms.write(tmp_path, {"c.parquet": b"PAR1"}))


def test_a_table_of_encoded_images_is_refused_in_a_short_message(tmp_path):
    row = "\t".join(["0", "0", "a dog", "QUJD" * 10_000])
    caption_forms.write(tmp_path, IMAGES | {"captions.tsv": row + "\n"})
    with pytest.raises(DataError) as error:
        load("train", tmp_path, captions="captions.tsv")
    assert len(str(error.value)) < 600
