"""Rare forms and slips of caption files are read as they are meant."""

import pytest

from tests.training.data.sources.caption_forms import (
    COCO,
    A,
    B,
    box_of,
    chat,
    everything,
    table,
    write,
)

ODD = {
    "words like marks": (
        {"c.csv": table("image,caption", "a.jpg,start of 2 < 3 > 1 at the end")},
        {"a.jpg": ("start of 2 < 3 > 1 at the end",)},
    ),
    "absolute paths of another machine": (
        {
            "c.csv": table("path,caption", f"/content/drive/a.jpg,{A}", f"C:\\x\\b.jpg,{B}"),
            "images/a.jpg": b"",
            "b.jpg": b"",
        },
        {"images/a.jpg": (A,), "b.jpg": (B,)},
    ),
    "captions beside images in another folder": (
        {"images/1/a.jpg": b"", "text/1/a.txt": f"{A}\n[/EN#5/people Two dogs] run home"},
        {"images/1/a.jpg": (A, "Two dogs run home")},
    ),
    "a conversation": (
        {
            "c.json": [
                {
                    "image": "a.jpg",
                    "conversations": [
                        {"from": "human", "value": "<image>What is it?"},
                        {"from": "gpt", "value": A},
                    ],
                }
            ]
        },
        {"a.jpg": (A,)},
    ),
    "a chat that shows its image": ({"c.jsonl": [chat("a.jpg")]}, {"a.jpg": (A,)}),
    "captions of boxes, from CVAT": (
        {
            "c.json": {
                "images": COCO["images"][:1],
                "annotations": [box_of({"caption": A, "occluded": False})],
            }
        },
        {"a.jpg": (A,)},
    ),
    "a caption beside each image, named with its suffix": (
        {"a.jpg": b"", "a.jpg.txt": A},
        {"a.jpg": (A,)},
    ),
    "a description of Google Photos": (
        {"a.jpg": b"", "a.jpg.json": {"title": "a.jpg", "description": A, "url": "https://x/1"}},
        {"a.jpg": (A,)},
    ),
    "a path from the caption file's folder": (
        {"images/a.jpg": b"", "text/c.csv": table("image,caption", f"../images/a.jpg,{A}")},
        {"images/a.jpg": (A,)},
    ),
    "a name written for the web": (
        {"a b.jpg": b"", "c.csv": table("image,caption", f"a%20b.jpg,{A}")},
        {"a%20b.jpg": (A,)},
    ),
    "a number written by pandas": (
        {"007.jpg": b"", "c.csv": table("image_id,caption", f"7.0,{A}")},
        {"7.0": (A,)},
    ),
    "quotation marks behind backslashes": (
        {"c.csv": table("image,caption", r'a.jpg,"one \"two\", three"')},
        {"a.jpg": ('one "two", three',)},
    ),
    "commas without quotes": (
        {"c.csv": table("image,caption", "a.jpg,one, two, three")},
        {"a.jpg": ("one, two, three",)},
    ),
    "quotation marks within captions of a list": (
        {"c.csv": table("image,captions", """a.jpg,"['a ""stop"" ""go"" sign', 'two']\"""")},
        {"a.jpg": ('a "stop" "go" sign', "two")},
    ),
    "two files of an image's name": ({"a.jpg": b"", "a.txt": A, "a.jpg.txt": B}, {"a.jpg": (A,)}),
    "texts of images that differ in their suffix": (
        {"a.jpg": b"", "a.png": b"", "a.jpg.txt": A, "a.png.txt": B},
        {"a.jpg": (A,), "a.png": (B,)},
    ),
    "several captions in JSON beside an image": (
        {"a.jpg": b"", "a.json": {"caption": f"{A}|{B}"}},
        {"a.jpg": (A, B)},
    ),
    "captions under two keys of JSON beside an image": (
        {"a.jpg": b"", "a.json": {"caption_1": A, "caption_2": B}},
        {"a.jpg": (A, B)},
    ),
    "quotation marks between tabs": (
        {"c.tsv": table("image\tcaption", 'a.jpg\t"Stop" sign')},
        {"a.jpg": ('"Stop" sign',)},
    ),
    "UTF-16": ({"c.txt": table("image\tcaption", f"a.jpg\t{A}").encode("utf-16")}, {"a.jpg": (A,)}),
    "numbers for names": (
        {"c.json": [{"image_id": 42, "caption": A}], "COCO_val2014_000000000042.jpg": b""},
        {"42": (A,)},
    ),
}


@pytest.mark.parametrize("form", ODD)
def test_an_odd_form_is_read(tmp_path, form):
    files, wanted = ODD[form]
    images = {} if any(name.endswith("jpg") for name in files) else {"a.jpg": b""}
    assert everything(write(tmp_path, files | images))[0] == wanted
