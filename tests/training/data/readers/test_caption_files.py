"""Caption files: each form is read exactly, anything else is refused with what to do."""

import json
import os

import pytest

from tests.training.data.readers.folders import BOTH, IMAGES, A, B, everything, load, tar_of, write
from training.data.examples import DataError

ROWS = f"image,caption\na.jpg,{A}\nb.jpg,{B}\n"
RECORDS = [{"file_name": "a.jpg", "text": A}, {"file_name": "b.jpg", "text": B}]
COCO = {
    "images": [{"id": 7, "file_name": "a.jpg"}, {"id": 8, "file_name": "b.jpg"}],
    "annotations": [{"image_id": 7, "caption": A}, {"image_id": 8, "caption": B}],
}
KARPATHY = {
    "images": [
        {"filename": "a.jpg", "split": "restval", "sentences": [{"raw": A}]},
        {"filename": "b.jpg", "split": "val", "sentences": [{"raw": B}]},
    ]
}
FORMS = {
    "csv": {"captions.csv": ROWS},
    "semicolons": {"captions.csv": ROWS.replace(",", ";")},
    "tabs": {"captions.tsv": ROWS.replace(",", "\t")},
    "pipes": {"captions.csv": ROWS.replace(",", "|")},
    "Excel's first line": {"captions.csv": "sep=;\r\n" + ROWS.replace(",", ";")},
    "capitals and blanks": {"captions.csv": ROWS.replace("image,caption", "Image, Caption")},
    "separators at the ends of lines": {"captions.csv": ROWS.replace("\n", ",,\n")},
    "rows of empty cells": {"captions.csv": ROWS + ",\n"},
    "quotes": {"captions.csv": f'image,caption\n"a.jpg","{A}"\n"b.jpg","{B}"\n'},
    "a text of that name": {"captions.txt": ROWS},
    "JSON lines": {"metadata.jsonl": RECORDS},
    "a list": {"captions.json": RECORDS},
    "lists of captions": {
        "captions.json": [{"image": n, "captions": [*c]} for n, c in BOTH.items()]
    },
    "a list in a cell": {
        "captions.csv": f'image,captions\na.jpg,"[""{A}""]"\nb.jpg,"[""{B}"", null]"\n'
    },
    "COCO": {"captions_train2017.json": COCO},
    "COCO with KTVIC's key": {
        "c.json": COCO | {"images": [{"id": 7, "filename": "a.jpg"}, {"id": 8, "filename": "b"}]}
    },
    "Karpathy": {"dataset_own.json": KARPATHY},
    "tokens": {"own.token": f"a.jpg#0\t{A}\nb.jpg#0\t{B}\n"},
    "tokens in a text": {"captions.txt": f"a.jpg#0\t{A}\nb.jpg#0\t{B}\n"},
    "pairs": {"a.txt": A, "b.txt": B},
    "names without suffix": {"captions.csv": ROWS.replace(".jpg", "")},
    "two levels below": {"data/annotations/captions.csv": ROWS},
}


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("form", FORMS)
def test_each_form_gives_the_same_captions(tmp_path, form, mark):
    files = {
        name: mark + content if isinstance(content, str) else content
        for name, content in FORMS[form].items()
    }
    captions, _, _ = everything(write(tmp_path, IMAGES | files))
    assert {os.path.splitext(name)[0]: texts for name, texts in captions.items()} == {
        "a": (A,),
        "b": (B,),
    }


def test_utf16_with_its_mark_is_read(tmp_path):
    write(tmp_path, IMAGES | {"captions.tsv": ROWS.replace(",", "\t").encode("utf-16")})
    assert everything(tmp_path)[0] == BOTH


SIX = {f"{n}.jpg": b"" for n in range(6)}


def six(*cells: str, header: str = "image,caption") -> dict:
    rows = [f"{n}.jpg,{cell}" for n, cell in enumerate(cells)]
    return SIX | {"captions.csv": "\n".join([header, *rows]) + "\n"}


REFUSED = {
    "columns of other names": (
        {"c.csv": f"No,Description\na,{A}\nb,{B}\n"},
        "which column holds the image and the caption.*It has No, Description"
        ".*`--data.columns image=No,caption=Description`",
    ),
    "two texts": (
        {"c.csv": f"image,caption,text\na.jpg,{A},x\nb.jpg,{B},y\n"},
        "which column holds the caption.*`--data.columns image=image,caption=caption`",
    ),
    "a text that need not be the caption": (
        {"c.csv": f"image,text,description\na.jpg,STOP,{A}\n"},
        "`--data.columns image=image,caption=description`",
    ),
    "texts of several kinds": (
        {"c.csv": f"image,caption,lang\na.jpg,{A},en\na.jpg,ein Ball,de\n"},
        "lang: the texts are of several kinds, such as 'en' and 'de'; keep those of one",
    ),
    "a numbered list in a cell": (
        {"c.csv": f"image,caption\na.jpg,1. {A} 2. {B}\n"},
        "1 of 1 captions have a mark such as .* 1. and 2. inside",
    ),
    "numbered captions": (
        {"c.csv": f"image,caption_1,caption_2\na.jpg,{A},{B}\n"},
        "`--data.columns image=image,caption=caption_1,caption=caption_2`",
    ),
    "numbered images": (
        {"c.csv": f"image_1,image_2,caption_1,caption_2\na.jpg,b.jpg,{A},{B}\n"},
        "found the columns image_1, image_2.*docs/data.md#convert",
    ),
    "a name with a comma": (
        {"c.csv": f'image;"text, German"\na.jpg;{A}\n'},
        "`--data.columns image=image,caption=2`",
    ),
    "web addresses": (
        {"c.json": [{"url": "https://x.org/a.jpg?w=4", "words": [A]}]},
        "`--data.columns image=url,caption=words`",
    ),
    "no header": (
        {"c.csv": f"a.jpg,{A}\nb.jpg,{B}\n"},
        "line 1: expected a header.*`--data.columns image=1,caption=2`",
    ),
    "an object by names": ({"c.json": {"a.jpg": A}}, "found an object with the keys 'a.jpg'"),
    "nested records": ({"c.jsonl": [{"data": {"image": "a.jpg"}}]}, "found the columns data"),
    "chats": ({"c.json": [{"id": 1, "conversations": []}]}, "found the columns id, conversations"),
    "a line of another kind": ({"c.jsonl": '{"image": "a"}\n[1]\n'}, r"found '\[1\]' \(line 2\)"),
    "equal keys": (
        {"c.jsonl": f'{{"image": "a.jpg", "caption": "{A}", "caption": "{B}"}}\n'},
        "line 1: the key 'caption' occurs twice",
    ),
    "a list of NumPy": (
        {"c.csv": "image,caption\na.jpg,\"['one dog' 'two dogs']\"\n"},
        r"line 2: expected text or a JSON list of texts, got .*docs/data.md#convert",
    ),
    "an array": ({"c.csv": "image,caption\na.jpg,\"array(['one'])\"\n"}, "line 2: expected text"),
    "objects in a list": ({"c.json": [{"image": "a.jpg", "captions": [{"raw": A}]}]}, "got {'raw'"),
    "numbers": ({"c.json": [{"image": "a.jpg", "caption": 5}]}, r"\[0\]: expected text or a JSON"),
    "words": (
        {"c.json": [{"image": "a.jpg", "captions": A.split()}]},
        r"\[0\]: the words \['a', 'red', 'ball'\]",
    ),
    "marks of the start": (
        {"c.csv": f"image,caption\na.jpg,<start> {A} <end>\n"},
        "line 2: 1 of 1 captions have a mark such as <start>.* '<start> a red ",
    ),
    "captions joined by bars": (
        six(*["a dog runs | a dog"] * 6),
        r"6 of 6 captions have a mark such as .* inside.*rows of their own",
    ),
    "captions joined by line breaks": (
        six(*['"a dog\na cat"'] * 6, header="image,captions"),
        "line 2: several captions in one cell",
    ),
    "merged cells": (
        {"c.csv": f"image,caption\na.jpg,{A}\n,{B}\n"},
        "line 3: the name of the image is empty; if cells were merged, fill them down",
    ),
    "numbered folds": (
        {"c.csv": f"image,caption,split\na.jpg,{A},0\nb.jpg,{B},1\n"},
        "line 2: expected the split train, dev, test .* got '0'; `--data.held-out 0.1,0.2`",
    ),
    "a field too many": (
        {"c.csv": f"image,caption\na.jpg,{A}, indeed\n"},
        "line 2: expected 2 fields, got 3 .*needs quotation marks",
    ),
    "a mark that is not closed": (
        {"c.csv": f'image,caption\na.jpg,"{A}\nb.jpg,{B}\na.jpg,{A}"\n'},
        r"line 2: the quotation mark before .* 'b.jpg,two dogs run home' \(line 3\)",
    ),
    "a mark within a text": ({"c.csv": f'image,caption\na.jpg,"{A}" b\n'}, "line 2: not CSV"),
    "Latin-1": ({"c.csv": "image,caption\na.jpg,Tür\n".encode("latin-1")}, "line 2: not UTF-8"),
    "UTF-8 read as Latin-1": (
        {"c.csv": f"image,caption\na.jpg,{'Tür'.encode().decode('latin-1')} offen\n"},
        "line 2: 1 of 1 captions have letters of a wrong encoding",
    ),
    "names of texts": (
        {"c.csv": "image,caption\na.jpg,texts/a.txt\nb.jpg,texts/b.txt\n"},
        "line 2: 2 of 2 captions are names of files",
    ),
    "a series of pandas": (
        {"c.csv": 'image,caption\na.jpg,"0    a dog\nName: caption, dtype: object"\n'},
        "line 2: expected text or a JSON list of texts",
    ),
    "quoted texts with commas": (
        {"c.csv": "image,caption\na.jpg,\"'a dog', 'a cat'\"\n"},
        "line 2: expected text or a JSON list of texts",
    ),
    "splits by another name": (
        {"c.csv": f"image,caption,subset\na.jpg,{A},train\nb.jpg,{B},val\n"},
        "does the column subset hold the splits. If so, add `--data.columns "
        "image=image,caption=caption,split=subset`; else `--data.held-out 0.1,0.2`",
    ),
    "splits of some images": (
        {"c.csv": f"image,caption\na.jpg,{A}\n", "train.csv": f"image,caption\nb.jpg,{B}\n"},
        "'a.jpg' .c.csv, line 2. has no split, but other images",
    ),
    "folders that name some splits": (
        {"train/c.jpg": b"", "test/d.jpg": b"", "c.csv": f"image,caption\nc,{A}\nd,{B}\n"},
        "folders of the images name splits .*train/c.jpg.* but none to dev",
    ),
    "another folder": (
        {"cats/1.jpg": b"", "c.csv": f"image,caption\ndogs/1.jpg,{A}\n"},
        "no image file; there is cats/1.jpg.*add `--data.image-dir cats`",
    ),
    "two addresses of one file": (
        {"c.csv": f"image,caption\nhttp://x.org/1/a.jpg,{A}\nhttp://x.org/2/a.jpg,{B}\n"},
        "line 3: 'x.org/1/a.jpg' and 'x.org/2/a.jpg' both mean the file a.jpg",
    ),
    "one name of two images of COCO": (
        {"c.json": COCO | {"images": [{"id": n, "file_name": "a.jpg"} for n in (7, 8)]}},
        r"images\[1\]: the name 'a.jpg' is that of images.0., too",
    ),
    "half a character": ({"c.json": [{"image": "a.jpg", "caption": "\ud83d x"}]}, "half a char"),
    "an image in the text": (
        {"c.json": [{"image": "data:image/png;base64,AA", "caption": A}]},
        "is no name of an image; write the image to a file",
    ),
    "JSON lines by another name": ({"c.json": "{}\n{}"}, r"not JSON .*need a name \*.jsonl"),
    "no JSON": ({"c.json": "{"}, "c.json, the whole file: not JSON"),
    "a file without rows": ({"c.csv": "image,caption\n"}, "c.csv holds no image"),
    "an empty file": ({"c.csv": ""}, "c.csv is empty"),
    "COCO with another name": (
        {"c.json": COCO | {"images": [{"id": 7, "filename": "a.jpg"}]}},
        r"annotations\[1\]: no image has the id 8",
    ),
    "COCO with another key": (
        {"c.json": {"images": [{"id": 7, "name": "a"}], "annotations": []}},
        r"images\[0\]: expected 'file_name', found 'id', 'name'; see docs/data.md#convert",
    ),
    "COCO's boxes": (
        {"c.json": COCO | {"annotations": [{"image_id": 7, "bbox": [0, 0, 1, 1]}]}},
        r"annotations\[0\]: it has a 'bbox'",
    ),
    "Karpathy without texts": (
        {"c.json": {"images": [{"filename": "a", "sentences": [{"tokens": ["a"]}]}]}},
        r"images\[0\].sentences\[0\]: expected 'raw', found 'tokens'",
    ),
    "a token line that is broken": (
        {"c.token": f"a.jpg#0\t{A}\nand more\n"},
        "line 2: expected NAME.jpg#K<TAB>caption, got 'and more'; is it the end of line 1",
    ),
    "places of boxes": ({"a.txt": "0 0.5 0.5 1 1\n"}, "a.txt: 1 of 1 captions have no letters"),
    "one text of two images": ({"a.png": b"", "a.txt": A}, "the text of a.jpg and of a.png"),
    "texts elsewhere": (
        {"texts/x.txt": A, "texts/y.txt": B},
        "Not read: texts/x.txt, texts/y.txt.*found no captions; expected a table .*#convert",
    ),
    "a spreadsheet": ({"captions.xlsx": b"PK"}, "Not read: captions.xlsx. .*docs/data.md#convert"),
    "a record of each image": (
        {f"ann/{n}.jpg.json": {"tags": []} for n in range(9)},
        r"Not read: 9 files \*.json such as ann/0.jpg.json",
    ),
    "a tar without texts": (
        {"0.tar": tar_of({"a.jpg": b"x"})},
        "0.tar.*1 files, 1 of them images, and no KEY",
    ),
    "two images of a name": (
        {
            "0.tar": tar_of({"a.jpg": b"x", "a.txt": A}),
            "1.tar": tar_of({"a.jpg": b"y", "a.txt": B}),
        },
        "1.tar, a.txt: a second image 'a.jpg', unlike that of 0.tar",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_anything_else_is_refused_with_what_to_do(tmp_path, case):
    files, said = REFUSED[case]
    options = {"captions": "c.csv,train.csv"} if "train.csv" in files else {}
    with pytest.raises(DataError, match=f"(?s){said}"):
        load("train", write(tmp_path, IMAGES | files), **options)


def test_what_is_suggested_is_read(tmp_path):
    write(tmp_path, IMAGES | {"c.csv": f"No,Text A,split\na,{A},train\nb,{B},val\n"})
    captions, splits, _ = everything(tmp_path, columns="image=No,caption=Text A")
    assert captions == {"a": (A,), "b": (B,)} and splits == {"a": "train", "b": "dev"}
    write(tmp_path, {"c.csv": f"a.jpg,{A},{B}\nb.jpg,{B},{A}\n"})
    found = everything(tmp_path, columns="image=1,caption=2,caption=3")[0]
    assert found == {"a.jpg": (A, B), "b.jpg": (B, A)}
    with pytest.raises(DataError, match="`--data.columns caption=4` names no column"):
        load("train", tmp_path, columns="image=1,caption=4")


def test_columns_that_are_not_read_are_named(tmp_path):
    write(tmp_path, IMAGES | {"c.csv": f"image,caption,title\na.jpg,{A},x\nb.jpg,{B},y\n"})
    assert "c.csv: columns that are not read: title." in everything(tmp_path)[2]


def test_missing_captions_are_counted_and_their_images_skipped(tmp_path):
    write(tmp_path, six("nan", "None", "NULL", "na", "", "a dog"))
    skipped = [name for s in ("train",) for name, _ in load(s, tmp_path, held_out="0,0").skipped]
    assert skipped == [f"{n}.jpg" for n in range(5)]
    assert any(
        "5 captions are missing" in note for note in load("train", tmp_path, held_out="0,0").notes
    )


def test_quotation_marks_between_tabs_are_text(tmp_path):
    write(tmp_path, IMAGES | {"c.tsv": f'image\tcaption\na.jpg\t"No" it says\nb.jpg\t{B}\n'})
    assert everything(tmp_path)[0] == {"a.jpg": ('"No" it says',), "b.jpg": (B,)}


def test_line_breaks_within_a_quoted_caption_are_spaces(tmp_path):
    write(tmp_path, IMAGES | {"c.csv": f'image,caption\na.jpg,"a red\r\nball"\nb.jpg,{B}\n'})
    assert everything(tmp_path)[0]["a.jpg"] == ("a red ball",)


def test_captions_that_coco_marks_as_rejected_are_left_out_and_counted(tmp_path):
    marked = [{"image_id": 7, "caption": "no", "is_rejected": True}]
    write(tmp_path, IMAGES | {"c.json": COCO | {"annotations": [*COCO["annotations"], *marked]}})
    captions, _, notes = everything(tmp_path)
    assert captions == BOTH and any(
        "c.json: 1 captions marked is_rejected" in note for note in notes
    )
    assert load("train", tmp_path).identifiers.items() <= {"7": "a.jpg", "8": "b.jpg"}.items()


def test_lines_of_a_text_are_captions(tmp_path):
    write(tmp_path, IMAGES | {"a.txt": f"{A}\n\n{B}\n", "b.txt": B, "notes/c.txt": "none"})
    captions, _, notes = everything(tmp_path)
    assert captions == BOTH | {"a.jpg": (A, B)}
    assert any("2 files *.txt named like their images; 1 of them" in note for note in notes)
    assert "Not read: notes/c.txt." in notes


def test_images_in_a_tar_are_read_from_it(tmp_path):
    members = {"0.jpg": b"first", "0.txt": A, "x/1.jpg": b"second", "x/1.txt": B, "0.json": "{}"}
    write(tmp_path, {"0.tar": tar_of(members)})
    examples = [e for s in ("train", "dev") for e in load(s, tmp_path).examples]
    found = {e.image_id: (e.image.read_bytes(), e.captions) for e in examples}
    assert found == {"0.jpg": (b"first", (A,)), "x/1.jpg": (b"second", (B,))}


@pytest.mark.parametrize("inside", [True, False])
def test_parquet_is_read_with_images_or_names(tmp_path, inside):
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    shown = [{"bytes": b"one", "path": "a.jpg"}, {"bytes": b"two", "path": None}]
    images = shown if inside else ["a.jpg", "b.jpg"]
    table = pyarrow.table({"image": images, "captions": [[A], [B]]})
    parquet.write_table(table, write(tmp_path, IMAGES) / "train-00000-of-00001.parquet")
    examples = [e for s in ("train", "dev") for e in load(s, tmp_path).examples]
    found = {e.image_id: e.captions for e in examples}
    second = "train-00000-of-00001/000001.jpg" if inside else "b.jpg"
    assert found == {"a.jpg": (A,), second: (B,)}
    if inside:
        assert {e.image.read_bytes() for e in examples} == {b"one", b"two"}


def test_a_pipe_is_neither_an_image_nor_a_caption_file(tmp_path):
    write(tmp_path, {"a.jpg": b"", "captions.csv": f"image,caption\na.jpg,{A}\np.jpg,{B}\n"})
    os.mkfifo(tmp_path / "p.jpg")
    os.mkfifo(tmp_path / "more.csv")
    split = load("train", tmp_path, held_out="0,0")
    assert [e.image_id for e in split.examples] == ["a.jpg"] and split.skipped[0][0] == "p.jpg"


def test_a_file_that_is_too_large_is_refused(tmp_path):
    write(tmp_path, IMAGES)
    with (tmp_path / "captions.json").open("wb") as file:
        file.truncate(2**31 + 1)  # takes no room
    with pytest.raises(DataError, match="captions.json has more than"):
        load("train", tmp_path)


# Which files.


def test_a_file_per_split_is_read(tmp_path):
    one = json.loads(json.dumps(COCO))
    one["images"], one["annotations"] = one["images"][:1], one["annotations"][:1]
    other = {"images": COCO["images"][1:], "annotations": COCO["annotations"][1:]}
    for names in (
        ("captions_train2017.json", "captions_val2017.json"),
        ("train/captions.json", "dev/captions.json"),
    ):
        folder = tmp_path / names[0].replace("/", "-")
        write(
            folder,
            IMAGES | dict(zip(names, (one, other), strict=True)) | {"instances_val.json": {}},
        )
        captions, splits, _ = everything(folder)
        assert captions == BOTH and splits == {"a.jpg": "train", "b.jpg": "dev"}


def test_of_several_files_the_only_one_with_captions_is_read(tmp_path):
    boxes = COCO | {"annotations": [{"image_id": 7, "bbox": [0, 0, 1, 1]}]}
    others = {"classes.json": {"dog": 1}, "instances.json": boxes, "empty.csv": ""}
    write(tmp_path, IMAGES | {"captions.csv": ROWS} | others)
    captions, _, notes = everything(tmp_path)
    assert captions == BOTH and "Not read: classes.json, instances.json, empty.csv." in notes
    write(tmp_path, {"more.csv": ROWS})
    with pytest.raises(DataError, match="Name one with `--data.captions captions.csv`, or all"):
        load("train", tmp_path)
    assert everything(tmp_path, captions="more.csv")[0] == BOTH
    both = everything(tmp_path, captions="captions.csv,more.csv")[0]
    assert both == {name: texts * 2 for name, texts in BOTH.items()}
    with pytest.raises(DataError, match="`--data.captions x.csv`: no such file .*captions.csv"):
        load("train", tmp_path, captions="x.csv")


def test_results_among_the_data_are_not_read(tmp_path):
    run = {"runs/config.json": {}, "runs/vocabulary.json": {}, "runs/captions.csv": ROWS}
    write(tmp_path, IMAGES | {"c.csv": ROWS} | run)
    assert everything(tmp_path)[::2] == (BOTH, [])


@pytest.mark.parametrize("names", [("a.jpg", "b.jpg"), ("a", "b")])
def test_lists_of_the_images_of_each_split_are_honoured(tmp_path, names):
    lists = {"own.trainImages.txt": f"{names[0]}\n", "own.devImages.txt": f"{names[1]}\nc.jpg\n"}
    write(tmp_path, IMAGES | {"c.token": f"a.jpg#0\t{A}\nb.jpg#0\t{B}\n"} | lists)
    _, splits, notes = everything(tmp_path)
    assert splits == {"a.jpg": "train", "b.jpg": "dev"}
    assert any("The splits are those of own" in note for note in notes)
    assert any("1 line without an image" in note for note in notes)


def test_lists_of_positions_are_not_used_and_named(tmp_path):
    write(tmp_path, six(*[A] * 6) | {"train.txt": "0\n1\n2\n3\n", "val.txt": "4\n5\n"})
    _, splits, notes = everything(tmp_path)
    assert list(splits.values()).count("train") == 4
    assert any("The lists train.txt, val.txt are not used" in note for note in notes)
