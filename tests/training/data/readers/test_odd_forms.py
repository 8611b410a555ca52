"""Rare forms and slips of caption files are read as they are meant."""

import pytest

from tests.training.data.readers.caption_forms import (
    A,
    B,
    chat,
    everything,
    load,
    table,
    tar_of,
    write,
)
from training.data.examples import DataError


def told(text: str) -> dict:
    """An annotation of Label Studio."""
    return {"result": [{"type": "textarea", "from_name": "caption", "value": {"text": text}}]}


OF_A = {
    "a conversation": {
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
    "a chat that shows its image": {"c.jsonl": [chat("a.jpg")]},
    "a description of Google Photos": {
        "a.jpg.json": {"title": "a.jpg", "description": A, "url": "https://x/1"}
    },
    "values within objects": {
        "c.json": [{"pk": 1, "fields": {"image": [{"filename": "a.jpg"}], "caption": A}}]
    },
    "records deep in an answer": {
        "c.json": {"ok": 1, "data": {"photos": {"edges": [{"node": {"file": "a.jpg", "alt": A}}]}}}
    },
    "a table of phpMyAdmin": {
        "c.json": [{"type": "header"}, {"type": "table", "data": [{"file": "a.jpg", "text": A}]}]
    },
    "a name and a caption on each line": {"c.jsonl": [["a.jpg", A]]},
    "a chat of Qwen": {"c.jsonl": [{"query": "<img>a.jpg</img>What is it?", "response": A}]},
    "a chat of Gemini": {
        "c.jsonl": [
            {
                "contents": [
                    {"role": "user", "parts": [{"fileData": {"fileUri": "gs://x/a.jpg"}}]},
                    {"role": "model", "parts": [{"text": A}]},
                ]
            }
        ]
    },
    "a name of Airtable": {"c.csv": table("Photo,Text", f"a.jpg (https://x.y/u/21/ab),{A}")},
    "a name in an address": {
        "c.csv": table("url,caption", f"https://x.y/show.php?f=a.jpg&s=1,{A}")
    },
    "an address of no host": {"c.csv": table("url,caption", f"http://[x/a.jpg,{A}")},
    "XMP beside an image": {
        "a.jpg.xmp": '<x:xmpmeta xmlns:x="adobe:ns:meta/" xmlns:dc="http://purl.org/dc/elements/1.1/"'
        ' xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"><dc:description><rdf:Alt>'
        f"<rdf:li>{A}</rdf:li></rdf:Alt></dc:description></x:xmpmeta>"
    },
    "an object within a list beside an image": {
        "a.jpg.json": [{"SourceFile": "a.jpg", "IPTC": {"Caption": A}}]
    },
    "a caption before tags": {"a.caption": A, "a.txt": "red, ball, grass"},
    "a file called the caption of an image": {"a_caption.txt": A},
    "XMP of a camera beside a table": {"a.xmp": "<x/>", "captions.txt": f"a.jpg\t{A}\n"},
    "no text, as MySQL writes it": {"c.txt": table("image\tcaption", f"a.jpg\t{A}", "a.jpg\t\\N")},
    "a dash before the caption": {"c.txt": f"a.jpg - {A}\n"},
    "titles above the headings": {
        "c.csv": table("My photographs,", "2024,", "image,caption", f"a.jpg,{A}")
    },
    "headings over two lines": {"c.csv": table('"Image\nfile";"Caption\nof it"', f"a.jpg;{A}")},
    "row names of R": {"c.tsv": table("image\tcaption", f"1\ta.jpg\t{A}")},
    "separators at the ends of all rows but the headings": {
        "c.csv": table("image,caption", f"a.jpg,{A},")
    },
    "groups called like marks": {"c.csv": table("image,caption,group", f"a.jpg,{A},invalid")},
    "alternative texts beside titles": {
        "c.csv": table("Image Filename,Title,Image Alt Text", f"a.jpg,pic-a,{A}")
    },
    "UTF-16": {"c.txt": table("image\tcaption", f"a.jpg\t{A}").encode("utf-16")},
}
"""Files that give a.jpg the caption A."""
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
    "Label Studio": (
        {
            "c.json": [
                {"data": {"image": "/data/upload/1/0a1b2c3d-a.jpg"}, "annotations": [told(A)]},
                {
                    "data": {"image": "s3://bucket/b.jpg"},
                    "annotations": [told(A) | {"was_cancelled": True}, told(B)],
                },
            ]
        },
        {"0a1b2c3d-a.jpg": (A,), "b.jpg": (B,)},
    ),
    "a table of Label Studio": (
        {"c.csv": table("image,id,caption", f"/data/upload/1/0a1b2c3d-a.jpg,1,{A}")},
        {"0a1b2c3d-a.jpg": (A,)},
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
    "texts of images that differ in their suffix": (
        {"a.jpg": b"", "a.png": b"", "a.jpg.txt": A, "a.png.txt": B},
        {"a.jpg": (A,), "a.png": (B,)},
    ),
    "captions under two keys of JSON beside an image": (
        {"a.jpg": b"", "a.json": {"caption_1": A, "caption_2": B}},
        {"a.jpg": (A, B)},
    ),
    "quotation marks between tabs": (
        {"c.tsv": table("image\tcaption", 'a.jpg\t"Stop" sign')},
        {"a.jpg": ('"Stop" sign',)},
    ),
    "a project of VIA": (
        {
            "c.json": {
                "_via_settings": {"ui": {"x": {}}},
                "_via_img_metadata": {
                    n + "7": {"filename": n, "file_attributes": {"caption": c}, "regions": []}
                    for n, c in (("a.jpg", A), ("b.jpg", B))
                },
                "_via_data_format_version": "2.0.10",
            },
            "a.jpg": b"",
            "b.jpg": b"",
        },
        {"a.jpg": (A,), "b.jpg": (B,)},
    ),
    "a name as the only key": ({"c.jsonl": [{"a.jpg": [A, B]}]}, {"a.jpg": (A, B)}),
    "COCO with lists under captions": (
        {
            "c.json": {
                "images": [{"id": 7, "file_name": "a.jpg"}],
                "captions": [{"image_id": 7, "sentences": [A, B]}],
            }
        },
        {"a.jpg": (A, B)},
    ),
    "Karpathy's form with plain sentences": (
        {"c.json": {"images": [{"filename": "a.jpg", "sentences": [A, B]}]}},
        {"a.jpg": (A, B)},
    ),
    "names with the number of a caption": (
        {"c.csv": table("caption_id,caption", f"a.jpg#0,{A}", f"a.jpg#1,{B}")},
        {"a.jpg": (A, B)},
    ),
    "a name of Wikimedia": (
        {"a_b.jpg": b"", "c.csv": table("file,caption", f"File:a b.jpg,{A}")},
        {"a b.jpg": (A,)},
    ),
    "several images in a cell": (
        {"a.jpg": b"", "b.jpg": b"", "c.csv": table("images,caption", f"a.jpg; b.jpg,{A}")},
        {"a.jpg": (A,), "b.jpg": (A,)},
    ),
    "addresses beside what the files are called": (
        {"a.jpg": b"", "c.csv": table("key,url,caption", f"a,https://x.y/1/large.jpg,{A}")},
        {"a": (A,)},
    ),
    "a path below another folder, with another suffix": (
        {
            "jpg/x/1.jpg": b"",
            "jpg/y/1.jpg": b"",
            "c.csv": table("path,report", f"x/1.png,{A}", f"y/1.png,{B}"),
        },
        {"x/1.png": (A,), "y/1.png": (B,)},
    ),
    "captions beside titles": (
        {"imgs/1.jpg": b"", "captions/1.txt": A, "titles/1.txt": B},
        {"imgs/1.jpg": (A,)},
    ),
    "a folder for each image": (
        {f"{n}/image.jpg": b"" for n in range(5)} | {f"{n}/caption.txt": A for n in range(5)},
        {f"{n}/image.jpg": (A,) for n in range(5)},
    ),
    "a file for each image, elsewhere": (
        {f"images/{n}.jpg": b"" for n in range(5)}
        | {f"annotations/{n}.json": {"caption": A} for n in range(5)}
        | {"meta.json": {"tags": [{"name": "caption"}]}},
        {f"images/{n}.jpg": (A,) for n in range(5)},
    ),
    "a path from a notebook": (
        {"images/a.jpg": b"", "c.csv": table("path,caption", f"../input/x/images/a.jpg,{A}")},
        {"images/a.jpg": (A,)},
    ),
    "captions in a list beside an image": (
        {"a.jpg": b"", "a.json": [{"caption": A}, {"caption": B}]},
        {"a.jpg": (A, B)},
    ),
    "numbered captions, as Python writes them": (
        {"c.csv": table("image,caption", f"a.jpg,\"{{0: '{A}', 1: '{B}'}}\"")},
        {"a.jpg": (A, B)},
    ),
    "names without suffix below a key": (
        {"c.json": {"data": {"a": [{"caption": A}]}}},
        {"a": (A,)},
    ),
    "captions in several columns": (
        {"c.csv": table("image,caption_1,caption_2", f"a.jpg,{A},{B}", f"b.jpg,{B},")},
        {"a.jpg": (A, B), "b.jpg": (B,)},
    ),
    "NumPy's lists without commas": (
        {
            "c.csv": table(
                "image,captions", f"a.jpg,\"['{A}'\n '{B}']\"", f"b.jpg,\"['{B}' '{A}']\""
            )
        },
        {"a.jpg": (A, B), "b.jpg": (B, A)},
    ),
    "captions without spaces, which are no words": (
        {"c.json": {"a.jpg": ["一只红色的狗", "狗在草地上跑"]}},
        {"a.jpg": ("一只红色的狗", "狗在草地上跑")},
    ),
    "keys of a tar that end at the first dot": (
        {"c.tar": tar_of({"0.jpg": "x", "0.1.txt": B, "0.0.txt": A})},
        {"0.jpg": (A, B)},
    ),
    "texts elsewhere, in folders like those of the images": (
        {f"images/{n}/0.jpg": b"" for n in "xy"}
        | {f"captions/{n}/0.txt": text for n, text in (("x", A), ("y", B))},
        {"images/x/0.jpg": (A,), "images/y/0.jpg": (B,)},
    ),
    "objects of several texts, and plain texts": (
        {"c.json": [{"image": "a", "said": {"text": [A, B]}}, {"image": "b", "said": B}]},
        {"a": (A, B), "b": (B,)},
    ),
    "captions, one too short, beside a machine's": (
        {"c.csv": table("image,caption,by_gpt", f"a,{A},so {A}", f"b,bad,so {B}", f"c,{B},so {A}")},
        {"a": (A,), "b": ("bad",), "c": (B,)},
    ),
    "numbers for names": (
        {"c.json": [{"image_id": 42, "caption": A}], "COCO_val2014_000000000042.jpg": b""},
        {"42": (A,)},
    ),
}


@pytest.mark.parametrize("form", [*OF_A, *ODD])
def test_an_odd_form_is_read(tmp_path, form):
    files, wanted = ODD.get(form) or (OF_A[form], {"a.jpg": (A,)})
    there = any(name.endswith(("jpg", "tar")) for name in files)
    images = {} if there else {f"{name.removesuffix('.jpg')}.jpg": b"" for name in wanted}
    assert everything(write(tmp_path, files | images))[0] == wanted


@pytest.mark.parametrize(
    ("header", "marks"),
    [
        ("answer", ("accept", "reject")),
        ("AssignmentStatus", ("Approved", "Rejected")),
        ("is_rejected", (0, 1)),
    ],
)
def test_captions_that_were_rejected_are_left_out_and_counted(tmp_path, header, marks):
    rows = (f"a.jpg,{text},{mark}" for text, mark in zip((A, B), marks, strict=True))
    folder = write(tmp_path, {"a.jpg": b"", "c.csv": table(f"image,caption,{header}", *rows)})
    captions, _, notes = everything(folder)
    assert captions == {"a.jpg": (A,)}
    assert any("1 captions marked" in note and "left out" in note for note in notes)


def test_a_mark_that_the_first_records_lack_counts(tmp_path):
    records = [{"image": "a.jpg", "caption": A}] * 1000
    records.append({"image": "b.jpg", "caption": B, "is_rejected": True})
    (tmp_path / "a.jpg").touch()
    split = load("train", write(tmp_path, {"c.json": records}), held_out="0,0")
    assert "c.json: 1 captions marked is_rejected are left out." in split.notes


def test_splits_below_a_key_are_honoured(tmp_path):
    parts = {"train": [{"image": "a.jpg", "text": A}], "val": [{"image": "b.jpg", "text": B}]}
    files = {"a.jpg": b"", "b.jpg": b"", "c.json": {"version": 1, "annotations": parts}}
    assert everything(write(tmp_path, files))[1] == {"a.jpg": "train", "b.jpg": "dev"}


LISTS = {
    "in a folder": {"ImageSets/Main/train.txt": "a\n", "ImageSets/Main/val.txt": "b\n"},
    "with paths": {"train.txt": "/data/images/a.jpg\n", "val.txt": "images/b.jpg\n"},
    "with labels": {"train.txt": "a.jpg 0\n", "val.txt": "b.jpg 1\n"},
    "called sets": {"trainset.txt": "a.jpg\n", "valset.txt": "b.jpg\n"},
    "as tables": {"train.csv": "image\na.jpg\n", "val.csv": "image\nb.jpg\n"},
    "in one file of JSON": {"splits.json": {"train": ["a.jpg"], "val": ["b"]}},
    "in JSON": {"train.json": ["a"], "val.json": ["b"]},
}


@pytest.mark.parametrize("form", LISTS)
def test_lists_of_the_images_of_each_split_are_honoured(tmp_path, form):
    rows = table("image,caption", f"a.jpg,{A}", f"b.jpg,{B}")
    files = {"images/a.jpg": b"", "images/b.jpg": b"", "captions.csv": rows}
    _, splits, notes = everything(write(tmp_path, files | LISTS[form]))
    assert splits == {"a.jpg": "train", "b.jpg": "dev"}
    assert any(note.startswith("The splits are those of ") for note in notes)


def test_a_list_of_names_that_two_images_have_is_not_taken(tmp_path):
    rows = table("image,caption", *(f"{folder}/{n}.jpg,{A}" for folder in "xy" for n in "ab"))
    images = {f"{folder}/{n}.jpg": b"" for folder in "xy" for n in "ab"}
    lists = {"train.txt": "a.jpg\n", "val.txt": "b.jpg\n"}
    notes = everything(write(tmp_path, images | {"captions.csv": rows} | lists))[2]
    assert not any("The splits are those" in note for note in notes)


def test_numbers_that_repeat_list_no_images(tmp_path):
    rows = table("image,caption", *(f"{n}.jpg,{A}" for n in range(3)))
    files = {f"{n}.jpg": b"" for n in range(3)} | {"captions.csv": rows}
    labels = {"train_labels.txt": "0\n1\n1\n", "val_labels.txt": "1\n2\n2\n"}
    notes = everything(write(tmp_path, files | labels))[2]
    assert not any("The splits are those" in note for note in notes)


def test_numbers_of_something_else_name_no_images(tmp_path):
    for header, name in (("file", "x.jpg"), ("url", "https://x.y/x.jpg")):
        text = table(f"{header},caption,score", f"{name},{A},1", f"{name},{B},2")
        folder = write(tmp_path / header, {"1.jpg": b"", "2.jpg": b"", "c.csv": text})
        with pytest.raises(DataError, match="with no image file"):
            load("train", folder)


def test_images_alone_in_lists_of_a_parquet_file_are_read(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    rows = [
        {"images": [{"bytes": b"x", "path": None}], "texts": [{"user": "What?", "assistant": A}]}
    ]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "c.parquet")
    (example,) = load("train", tmp_path).examples
    assert (example.image.read_bytes(), example.captions) == (b"x", (A,))
    rows[0]["images"] *= 2
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "c.parquet")
    with pytest.raises(DataError, match="several images under 'images'; keep one"):
        load("train", tmp_path)
