"""No caption goes to another image than its own without a word: each pairing is proven or said."""

import json

import pytest

from tests.training.data.readers.caption_forms import (
    BOTH,
    COCO,
    IMAGES,
    RECORDS,
    A,
    B,
    box_of,
    everything,
    load,
    table,
    tar_of,
    write,
)
from training.data.examples import DataError

WORDS = {"a.jpg": A.split(), "b.jpg": ["<sos>", *B.split(), "<eos>", "<pad>", "<pad>"]}
KARPATHY = [{"filename": n, "sentences": [{"tokens": w}]} for n, w in WORDS.items()]
NUMBERED = table("image_0,image_1,caption_0,caption_1", f"a.jpg,b.jpg,{A},{B}")


@pytest.mark.parametrize(
    "files",
    [
        {"c.json": [{"image": name, "caption": words} for name, words in WORDS.items()]},
        {"c.csv": table("image,caption", *(f'{n},"{w}"' for n, w in WORDS.items()))},
        {"c.json": {name: [words] for name, words in WORDS.items()}},
        {"c.json": {"images": KARPATHY}},
    ],
)
def test_the_words_of_a_caption_are_joined_with_a_note(tmp_path, files):
    captions, _, notes = everything(write(tmp_path, IMAGES | files))
    assert captions == BOTH
    assert any("2 lists of words are joined to a caption each" in note for note in notes)


def test_numbered_images_have_the_captions_of_their_numbers(tmp_path):
    write(tmp_path, IMAGES | {"c.csv": NUMBERED})
    for columns in (None, "image=image_0,image=image_1"):
        captions, _, notes = everything(tmp_path, columns=columns)
        assert captions == BOTH
        assert any("each image has the captions of its number" in note for note in notes)
    split = load("train", tmp_path, columns="image=image_0", held_out="0,0")
    assert [(e.image_id, e.captions) for e in split.examples] == [("a.jpg", (A,))]
    text = table("img_a,img_b,cap_a,cap_b", f"a.jpg,b.jpg,{A},{B}")
    columns = "image=img_a,image=img_b,caption=cap_a,caption=cap_b"
    assert everything(write(tmp_path, {"c.csv": text}), columns=columns)[0] == BOTH
    write(tmp_path, {"c.csv": text.replace("cap_a,cap_b", "first,second")})
    with pytest.raises(DataError, match="which caption goes with which image, their names do not"):
        everything(tmp_path, columns=columns.replace("cap_a", "first").replace("cap_b", "second"))
    write(tmp_path, {"c.csv": NUMBERED.replace("caption_1", "caption_2")})
    with pytest.raises(
        DataError, match=r"choose .*`--data.columns image=image_0`, or take several"
    ):
        everything(tmp_path)


@pytest.mark.parametrize(
    "files",
    [
        {"c.json": [{"images": ["a.jpg", "b.jpg"], "captions": [A, B]}]},
        {"c.csv": table("images,captions", f"a.jpg;b.jpg,{A}|{B}")},
    ],
)
def test_as_many_captions_as_images_are_paired_in_their_order_with_a_note(tmp_path, files):
    captions, _, notes = everything(write(tmp_path, IMAGES | files))
    assert captions == BOTH
    assert any("images and captions of 1 records are paired in their" in note for note in notes)
    write(tmp_path, {"c.csv": "", "c.json": [{"images": ["a.jpg", "b.jpg"], "captions": [A]}]})
    (tmp_path / "c.csv").unlink()
    captions, _, notes = everything(tmp_path)
    assert captions == {"a.jpg": (A,), "b.jpg": (A,)}
    assert "c.json: 1 records name several images, which share their captions." in notes


@pytest.mark.parametrize("same", [False, True])
def test_shards_whose_keys_begin_anew_do_not_share_images(tmp_path, same):
    shards = {
        f"{n}.tar": tar_of({"0.jpg": "x" if same else n, "0.txt": text})
        for n, text in (("00", A), ("01", B))
    }
    captions, _, notes = everything(write(tmp_path, shards))
    assert captions == ({"0.jpg": (A, B)} if same else {"00/0.jpg": (A,), "01/0.jpg": (B,)})
    assert same or any("Several files have an image 0.jpg" in note for note in notes)


def test_images_of_a_table_that_share_a_name_are_named_by_their_rows(tmp_path):
    pyarrow, parquet = map(pytest.importorskip, ("pyarrow", "pyarrow.parquet"))
    rows = [{"image": {"bytes": t[:5].encode(), "path": "0.jpg"}, "text": t} for t in (A, B, A)]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "c.parquet")
    captions, _, notes = everything(tmp_path)
    assert captions == {f"c/{n:06}.jpg": (t,) for n, t in enumerate((A, B, A))}
    assert any("several images are called 0.jpg" in note for note in notes)


def test_two_members_of_one_name_are_an_error(tmp_path):
    twice = tar_of({"0.jpg": b"A", "0.txt": A})[:2048] + tar_of({"0.jpg": b"B", "0.txt": B})
    with pytest.raises(DataError, match=r"member 0.jpg: a second member of that name"):
        load("train", write(tmp_path, {"c.tar": twice}))


SAID = {
    "a text of two images": (
        {"a.jpg": b"", "a.png": b"", "a.txt": A, "b.jpg": b"", "b.txt": B},
        "captions are those of 2 files named like their images; 1 of them serve several images",
    ),
    "texts in other capitals": (
        {"images/aB.jpg": b"", "text/AB.txt": A},
        "1 files named like their images; 1 of them are found in other capitals",
    ),
    "lists of positions": (
        {"a.jpg": b"", "c.json": RECORDS[:1], "train.txt": "0\n", "val.txt": "1\n"},
        "Not read, as their lines name no images: train.txt, val.txt.",
    ),
    "a second list of a split": (
        IMAGES
        | {"c.json": RECORDS, "train.txt": "a.jpg\n", "val.txt": "b.jpg\nc.jpg\n"}
        | {"train_all.txt": "a.jpg\n"},
        "Not read, as train.txt is the list of train: train_all.txt.",
    ),
    "names of a list without an image": (
        IMAGES | {"c.json": RECORDS, "train.txt": "a.jpg\n", "val.txt": "b.jpg\nc.jpg\n"},
        "train.txt, val.txt; 1 of their entries name no image with captions; `--data.held-out",
    ),
    "other files": (
        {"a.jpg": b"", "c.json": RECORDS[:1], "images.txt": "1 a.jpg\n", "README.txt": "x"}
        | {f"old/{n}.txt": A for n in range(5)},
        "Not read: images.txt, 5 files *.txt such as old/0.txt.",
    ),
    "merged cells": (
        {"a.jpg": b"", "c.csv": table("image,caption", f"a.jpg,{A}", f",{B}")},
        "c.csv: 1 rows name no image: they are taken for merged cells, of the image above.",
    ),
    "merged groups": (
        {f"{name}.jpg": b"" for name in "abcd"}
        | {"c.csv": table("image,caption,group", f"a,{A},x", f"b,{A},", f"c,{A},y", f"d,{A},")},
        "c.csv: 2 rows name no group: they are taken for merged cells, of the group above.",
    ),
    "images of one name with several ids": (
        {"a.jpg": b""}
        | {
            "c.json": {"images": [{"id": n, "file_name": "a.jpg"} for n in (1, 2)]}
            | {"annotations": [{"image_id": n, "caption": A} for n in (1, 2)]}
        },
        "1 entries have the name of an image before them with another id",
    ),
    "records that are not read": (
        {"a.jpg": b""}
        | {"c.json": {"n": 1} | {f"part{n}": {"items": RECORDS[:1] * n} for n in (1, 2)}},
        "c.json: captions are those under 'part2'; not read: part1.",
    ),
    "records without images": (
        {"a.jpg": b"", "c.json": [{"image": ["a.jpg"], "caption": A}, {"image": [], "caption": B}]},
        "c.json: 1 records with an empty list of images are left out.",
    ),
    "captions in several languages": (
        {"a.jpg": b"", "c.csv": table("image,lang,caption", f"a.jpg,en,{A}", f"a.jpg,de,{B}")},
        "the captions are in several languages (de, en); all are read",
    ),
    "captions by language": (
        {"a.jpg": b"", "c.json": {"en": {"a.jpg": A}, "de": {"a.jpg": B}}},
        "images are under several keys ('en', 'de'); their captions are put together",
    ),
    "attributes of boxes": (
        {"a.jpg": b""}
        | {"c.json": {"images": COCO["images"][:1], "annotations": [box_of({"text": A, "by": B})]}},
        "captions are the attribute 'text' of boxes, wherever these are; not read: 'by'",
    ),
    "columns of images that share a caption": (
        IMAGES | {"c.csv": table("left,right,caption", f"a.jpg,b.jpg,{A}")},
        "image is 'left', image is 'right', caption is 'caption'; they share the captions.",
    ),
}


@pytest.mark.parametrize("case", SAID)
def test_what_a_pairing_rests_on_and_what_is_not_read_is_said(tmp_path, case):
    files, said = SAID[case]
    columns = "image=left,image=right" if "columns" in case else None
    notes = everything(write(tmp_path, files), columns=columns)[2]
    assert any(said in note for note in notes), notes


def test_images_in_no_caption_file_are_named(tmp_path):
    split = load("train", write(tmp_path, IMAGES | {"c.json": RECORDS[:1]}), held_out="0,0")
    assert "1 image of the folder is in no caption file, such as b.jpg." in split.notes


def test_texts_that_are_named_like_no_image_are_named_where_nothing_else_is_found(tmp_path):
    with pytest.raises(DataError, match=r"Not read: x/1.txt. None has the name of an image, such"):
        load("train", write(tmp_path, {"a.jpg": b"", "x/1.txt": A}))


def test_a_text_elsewhere_that_images_of_two_folders_could_have_is_refused(tmp_path):
    write(tmp_path, {"x/0.jpg": b"", "y/0.jpg": b"", "captions/0.txt": A})
    with pytest.raises(DataError, match=r"that of several images, x/0.jpg and y/0.jpg; lay each"):
        load("train", tmp_path)


def test_captions_in_the_order_of_numbers_are_joined_in_that_order(tmp_path):
    names = {f"{n}.jpg": b"" for n in (1, 2, 10)}
    with pytest.raises(DataError, match=r"as one counts \(2.jpg before 10.jpg\).*`ls -v \*.jpg"):
        load("train", write(tmp_path, names | {"c.txt": f"{A}\n{B}\n{A}\n"}))


def test_records_of_other_images_than_their_files_are_named_after_are_refused(tmp_path):
    records = {f"{n}.json": {"image": f"{1 - n}.jpg", "caption": A} for n in range(2)}
    write(tmp_path, {"0.jpg": b"", "1.jpg": b"", **records})
    with pytest.raises(
        DataError, match=r"0.json: 'image' is '1.jpg', another .*`jq -s . \./\*.jso"
    ):
        load("train", tmp_path)


def test_numbered_folds_are_refused_with_what_reads_without_them(tmp_path):
    rows = [dict(record, split=n) for n, record in enumerate(RECORDS)]
    write(tmp_path, IMAGES | {"c.json": rows})
    with pytest.raises(DataError, match="or test, got '0'; `--data.held-out 0.1,0.2` divides by"):
        load("train", tmp_path)
    split = load("train", tmp_path, held_out="0,0")
    assert len(split) == 2 and any("splits are not read" in note for note in split.notes)


def test_a_name_in_each_of_two_folders_is_the_image_below_its_caption_file(tmp_path):
    files = {f"{n}/images/0.jpg": b"" for n in "xy"}
    files |= {f"{n}/c.csv": table("image,caption", f"0.jpg,{t}") for n, t in (("x", A), ("y", B))}
    captions = everything(write(tmp_path, files), captions="x/c.csv,y/c.csv")[0]
    assert captions == {"x/images/0.jpg": (A,), "y/images/0.jpg": (B,)}


BOX = {"x": 1, "y": 1, "width": 2, "height": 2}


def task(*texts: tuple[str, dict]) -> str:
    results = [
        {"id": str(n), "type": "textarea", "from_name": "c", "value": {"text": [text], **place}}
        for n, (text, place) in enumerate(texts)
    ]
    return json.dumps([{"data": {"image": "a.jpg"}, "annotations": [{"result": results}]}])


def test_texts_of_boxes_are_no_captions_of_the_image(tmp_path):
    write(tmp_path, {"a.jpg": b"", "c.json": task((B, BOX), (A, {}))})
    captions, _, notes = everything(tmp_path)
    assert captions == {"a.jpg": (A,)}
    assert "c.json: 1 captions of single boxes or other parts of an image are left out." in notes
    write(tmp_path, {"c.json": task((B, BOX))})
    with pytest.raises(DataError, match="all texts are of single boxes"):
        everything(tmp_path)
    write(tmp_path, {"c.json": [{"image": "a.jpg", "box": [BOX, BOX], "text": [A, B]}]})
    with pytest.raises(DataError, match="as many texts under 'text' as boxes under 'box'"):
        everything(tmp_path)
    assert everything(tmp_path, columns="caption=text")[0] == {"a.jpg": (A, B)}
    items = [
        {
            "id": "a",
            "annotations": [{"bbox": [0] * 4, "attributes": {"caption": B}}, {"caption": A}],
        }
    ]
    write(tmp_path, {"c.json": {"categories": {}, "items": items}})
    assert everything(tmp_path)[0] == {"a": (A,)}
