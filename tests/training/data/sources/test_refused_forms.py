"""Caption files that cannot be read, or not in one way: refused with what to do about it."""

import pytest

from tests.training.data.sources.caption_forms import (
    COCO,
    IMAGES,
    RECORDS,
    A,
    B,
    box_of,
    chat,
    load,
    table,
    tar_of,
    write,
)
from training.data.examples import DataError

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
        {"c.json": COCO | {"images": [7]}},
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
        {"c.json": COCO | {"annotations": [{"image_id": 7, "bbox": [0, 0, 1, 1]}]}},
        "boxes without captions; COCO's captions are in captions_.*`--data.captions`",
    ),
    "boxes with attributes": (
        {"c.json": COCO | {"annotations": [box_of({"colour": "red", "occluded": False})]}},
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
    folder = write(tmp_path, {"a.jpg": b"", "c.json": COCO | {"annotations": boxes}})
    with pytest.raises(DataError, match="caption=foo`: no such attribute .* 'colour', 'said'"):
        load("train", folder, columns="caption=foo")


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_unclear_is_refused_with_advice(tmp_path, case):
    files, message = REFUSED[case]
    folder = write(tmp_path, {"a.jpg": b"", **files})
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
        load("train", write(tmp_path, {"c.parquet": b"PAR1"}))


def test_a_table_of_encoded_images_is_refused_in_a_short_message(tmp_path):
    row = "\t".join(["0", "0", "a dog", "QUJD" * 10_000])
    write(tmp_path, IMAGES | {"captions.tsv": row + "\n"})
    with pytest.raises(DataError) as error:
        load("train", tmp_path, captions="captions.tsv")
    assert len(str(error.value)) < 600
