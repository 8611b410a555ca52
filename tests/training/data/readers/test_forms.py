"""Caption files as people have them: each form is read."""

import json
import tarfile

import pytest

from tests.training.data.readers.caption_forms import (
    ANNOTATED,
    BOTH,
    COCO,
    IMAGES,
    INNER,
    RECORDS,
    A,
    B,
    everything,
    load,
    records_of,
    table,
    tar_of,
    write,
)
from training.data.examples import DataError

PIPES = "image_name| comment_number| comment"
LINES = "".join(json.dumps(record) + "\n" for record in RECORDS)
XML = '<image name="a.jpg" subset="Train"><tag label="x"><attribute name="caption">{}'
XML += '</attribute></tag></image><image name="b.jpg" subset="Validation"><tag label="x">'
XML = f"<annotations>{XML}<attribute name='caption'>{{}}</attribute></tag></image></annotations>"


def each(made) -> list:
    """Results for the name and the caption of each of the two images."""
    return [made("a", A), made("b", B)]


def rows(header: str, form: str, end: str = "\n") -> str:
    """A table with a row for each image, of its name `{n}` and its caption `{c}`."""
    return table(header, *each(lambda n, c: form.format(n=n, c=c)), end=end)


def coco(key: str, start: str) -> dict:
    """COCO's, with the images named below another key."""
    images = [{"id": i["id"], key: start + i["file_name"]} for i in COCO["images"]]
    return COCO | {"images": images}


AT_ONCE = {
    "tokens with tabs": {"results.token": rows("", "{n}.jpg#0\t{c}")},
    "tokens with a mark": {"zh.caption.txt": rows("", "{n}.jpg#zhc#0 {c}")},
    "tokens without suffixes": {"c.txt": rows("", "{n}#enc#0\t{c}")},
    "a name, a space, a caption": {"hi.txt": rows("", "{n} {c}")},
    "pipes": {"r.csv": rows(PIPES, "{n}.jpg| 0| {c}")},
    "further columns": {"c.csv": rows("id,image,w,caption", "7,{n}.jpg,3,{c}")},
    "separators at the ends": {"c.csv": rows("image,caption,,", "{n}.jpg,{c},,")},
    "other headings": {"c.csv": rows("Filename;Beschreibung", "{n}.jpg;{c}")},
    "unknown headings": {"c.csv": rows("what,words", "{n}.jpg,{c}")},
    "no header": {"c.csv": rows("", "{n}.jpg,{c}")},
    "no header or suffixes": {"captions.txt": rows("", "{n}\t{c}")},
    "CR line ends": {"c.csv": rows("image,caption", "{n}.jpg,{c}", end="\r")},
    "sep=;": {"c.csv": rows("sep=;\nimage;caption", "{n}.jpg;{c}")},
    "a table below its columns": {"c.json": {"columns": ["image", "caption"], "data": RECORDS}},
    "columns of pandas in another order": {
        "c.json": {"images": {"1": "a.jpg", "2": "b.jpg"}, "captions": {"2": B, "1": A}}
    },
    "labels of two words beside captions": {
        "captions.csv": rows("image,caption", "{n}.jpg,{c}"),
        "labels.csv": table("image,label", "a.jpg,traffic light", "b.jpg,Mädchen"),
    },
    "names without suffix": {"c.csv": rows("id,caption", "{n},{c}")},
    "a kaggle text file": {"captions.txt": rows("image,caption", "{n}.jpg,{c}")},
    "lists in cells": {"c.csv": table("raw,filename", f'"[""{A}""]",a.jpg', f"\"['{B}']\",b.jpg")},
    "tuples and NumPy's lists in cells": {
        "c.csv": table("raw,filename", f"\"('{A}',)\",a.jpg", f"\"['{B}']\",b.jpg")
    },
    "a space before quotation marks": {"c.csv": rows("image, caption", '{n}.jpg, "{c}"')},
    "results of Mechanical Turk": {
        "c.csv": rows("Title,Input.url,Answer.caption", "What?,https://x/{n}.jpg,{c}")
    },
    "JSON lines called json": {"c.json": LINES},
    "a list called jsonl": {"c.jsonl": json.dumps(RECORDS)},
    "records over several lines": {"c.jsonl": LINES.replace(", ", ",\n")},
    "rows of pandas": {"c.json": {"columns": ["x", "y"], "data": [["a.jpg", A], ["b.jpg", B]]}},
    "lists side by side": {"c.json": {"images": ["a.jpg", "b.jpg"], "captions": [A, B]}},
    "web addresses": {"c.csv": rows("url,image,caption", "x,https://x.y/i/{n}.jpg?w=3,{c}")},
    "name to captions": {"c.json": {"a.jpg": [A], "b": [B]}},
    "name to record": {"c.json": {"a.jpg": {"captions": [A]}, "b.jpg": {"captions": [B]}}},
    "AI Challenger": {
        "c.json": each(lambda n, c: {"url": n, "image_id": f"{n}.jpg", "caption": [c]})
    },
    "COCO with filename": {"c.json": coco("filename", "")},
    "COCO with ids of two kinds": {
        "c.json": COCO | {"annotations": [a | {"image_id": str(a["image_id"])} for a in ANNOTATED]}
    },
    "COCO with addresses": {"c.json": coco("coco_url", "http://x/")},
    "TextCaps": {
        "c.json": {
            "dataset_name": "textcaps",
            "data": each(
                lambda n, c: (
                    {"image_id": n, "caption_str": c, "reference_strs": [c, c]}
                    | {"set_name": "train", "image_path": f"train/{n}.jpg"}
                )
            ),
        }
    },
    "IU X-ray": {
        "annotation.json": {
            "train": [{"id": "x", "report": A, "image_path": ["a.jpg"], "split": "train"}],
            "val": [{"id": "y", "report": B, "image_path": ["b.jpg"], "split": "val"}],
            "test": [],
        }
    },
    "CVAT": {"annotations.xml": XML.format(A, B)},
    "CVAT as Datumaro": {
        "default.json": {
            "categories": {},
            "items": each(
                lambda n, c: {
                    "image": {"path": f"{n}.jpg"},
                    "annotations": [{"type": "label", "attributes": {"text": c}}],
                }
            ),
        }
    },
    "VIA": {
        "via.json": {
            f"{n}.jpg123": {"filename": f"{n}.jpg", "regions": []}
            | {"file_attributes": {"caption": c}}
            for n, c in (("a", A), ("b", B))
        }
    },
    **{f"JSON lines called {s}": {f"c.{s}": LINES} for s in ("jsonlines", "ndjson")},
    "a manifest of Ground Truth": {
        "output.manifest": rows(
            "", '{{"source-ref": "s3://x/{n}.jpg", "caption": "{c}", "caption-metadata": {{}}}}'
        )
    },
    "rows of a data viewer": {
        "rows.json": {"features": [], "rows": [{"row_idx": 0, "row": row} for row in RECORDS]}
    },
    "lists by kind": {
        "c.json": {
            "airport": [{"raw": A, "filename": "a.jpg"}],
            "beach": [{"raw": B, "filename": "b.jpg"}],
        }
    },
    "names below a key": {"c.json": {"version": 1, "annotations": {"a.jpg": A, "b.jpg": [B]}}},
    "names by kind": {"c.json": {"cats": {"a.jpg": A}, "dogs": {"b.jpg": [B]}}},
    "addresses beside names": {
        "c.json": each(
            lambda n, c: {"link": f"http://x/{n}.jpg", "shown": f"{n}.jpg", "caption": c}
        )
    },
    "a caption beside others": {"c.csv": rows("image,raw_caption,caption", "{n}.jpg,{c}!,{c}")},
    "words beside sentences": {
        "c.json": {
            n: {"emotions": ["awe"], "told": [c], "image_name": f"{n}.jpg"}
            for n, c in (("a", A), ("b", B))
        }
    },
    "splits of many names": {
        "c.csv": table("image,caption,split", f"a.jpg,{A},train2014", f"b.jpg,{B},qual_dev")
    },
    "JSON beside images": {"a.json": {"shapes": [], "caption": A}, "b.json": {"caption": B}},
    "pairs of files": {"a.txt": A, "b.txt": B + "\n"},
}


@pytest.mark.parametrize("form", AT_ONCE)
def test_a_form_is_read_at_once(tmp_path, form):
    options = {"captions": "annotations.xml"} if form == "CVAT" else {}
    found, _, _ = everything(write(tmp_path, AT_ONCE[form] | IMAGES), **options)
    assert {n if n.endswith(".jpg") else f"{n}.jpg": c for n, c in found.items()} == BOTH


@pytest.mark.parametrize("mark", ["|", " || ", "###", "<sep>", ";", "\n"])
def test_several_captions_in_a_cell_are_taken_apart(tmp_path, mark):
    text = table("image,captions", f'a.jpg,"{A}{mark}{B}"', f"b.jpg,{B}")
    found, _, notes = everything(write(tmp_path, IMAGES | {"c.csv": text}))
    assert found == {"a.jpg": (A, B), "b.jpg": (B,)}
    assert notes == [f"c.csv: a cell holds several captions, with {mark.strip(' ')!r} between."]


def test_a_semicolon_within_a_caption_stays_and_is_named(tmp_path):
    text = table("image,caption", f"a.jpg,{A}; {B}", f"b.jpg,{B}; {A}")
    found, _, notes = everything(write(tmp_path, IMAGES | {"c.csv": text}))
    assert found == {"a.jpg": (f"{A}; {B}",), "b.jpg": (f"{B}; {A}",)}
    assert "most cells of 'caption' have ';' inside" in notes[0]


def test_columns_may_be_named(tmp_path):
    text = table("image,title,alt,part", f"a.jpg,{A},{B},train", f"b.jpg,{B},{A},dev")
    folder = write(tmp_path, IMAGES | {"c.csv": text})
    with pytest.raises(DataError, match=r"'title' and 'alt' could each be the caption; .*=title`"):
        load("train", folder)
    found, splits, notes = everything(folder, columns="image=image,caption=title,split=part")
    assert found == BOTH and splits == {"a.jpg": "train", "b.jpg": "dev"}
    assert notes == [
        "c.csv: image is 'image', caption is 'title', split is 'part'; not read: 'alt'."
    ]
    found, _, _ = everything(folder, columns="caption=title,caption=3")
    assert found["a.jpg"] == (A, B)
    with pytest.raises(DataError, match="`--data.columns caption=words`: there is no such col"):
        load("train", folder, columns="caption=words")
    with pytest.raises(ValueError, match="`--data.columns`.*ROLE=COLUMN.*got 'words'"):
        load("train", folder, columns="words")


def test_keys_of_json_beside_images_that_are_not_read_are_named(tmp_path):
    files = {"a.json": {"caption": A, "split": "train", "by": "x"}}
    files["b.json"] = {"caption": B, "split": "dev"}
    found, splits, notes = everything(write(tmp_path, IMAGES | files))
    assert found == BOTH and splits == {"a.jpg": "train", "b.jpg": "dev"}
    assert any("not read: 'by'" in note for note in notes)


def test_the_known_malformed_row_is_mended_and_named(tmp_path):
    text = table(PIPES, f"a.jpg| 0| {A}", f"b.jpg| 4   {B}")
    found, _, notes = everything(write(tmp_path, IMAGES | {"results.csv": text}))
    assert found == BOTH
    assert "results.csv: line 3, 'b.jpg': a separator before the caption is missing" in notes[1]


def test_captions_marked_as_invalid_are_left_out_and_counted(tmp_path):
    marks = ("is_rejected", "is_precanned")
    marked = [{"image_id": 7, "caption": "x", mark: True} for mark in marks]
    content = COCO | {"annotations": [*COCO["annotations"], *marked]}
    found, _, notes = everything(write(tmp_path, IMAGES | {"c.json": content}))
    assert found == BOTH
    assert notes == [
        "c.json: 1 captions marked is_rejected are left out.",
        "c.json: 1 captions marked is_precanned are left out.",
    ]


def test_an_image_keeps_the_number_of_its_file(tmp_path):
    content = COCO | {"images": [image | {"split": "dev"} for image in COCO["images"]]}
    split = load("dev", write(tmp_path, IMAGES | {"c.json": content}))
    assert split.identifiers == {"7": "a.jpg", "8": "b.jpg"}


def part(number: int) -> dict:
    return {key: [values[number]] for key, values in COCO.items()}


SPLITS = {
    "COCO": {
        "annotations/captions_train2017.json": part(0),
        "annotations/captions_val2017.json": part(1),
        "annotations/instances_val2017.json": {"images": [], "annotations": []},
        "train2017/a.jpg": b"",
        "val2017/b.jpg": b"",
    },
    "beside each other": {
        "train.csv": table("image,caption", f"a.jpg,{A}"),
        "val.csv": table("image,caption", f"b.jpg,{B}"),
        **IMAGES,
    },
    "deeper": {
        "train/radiology/captions.txt": f"a\t {A}\n",
        "val/radiology/captions.txt": f"b\t {B}\n",
        "val/radiology/keywords.txt": "b\tred\tball\n",
        "train/radiology/images/a.jpg": b"",
        "val/radiology/images/b.jpg": b"",
    },
    "hugging face": {
        "train/metadata.jsonl": [{"file_name": "0.jpg", "text": A}],
        "validation/metadata.jsonl": [{"file_name": "0.jpg", "text": B}],
        "train/0.jpg": b"",
        "validation/0.jpg": b"",
    },
    "folders of the images": {"c.csv": table("image,caption", f"a.jpg,{A}", f"b.jpg,{B}")}
    | {"train/a.jpg": b"", "val/b.jpg": b""},
    "pairs in folders": {
        **{"train/images/a.jpg": b"", "valid/images/b.jpg": b""},
        **{"train/labels/a.txt": A, "valid/labels/b.txt": B},
    },
    "lists beside the captions": {
        "text/c.token": f"a.jpg#0\t{A}\nb.jpg#0\t{B}\n",
        "text/Flickr_8k.trainImages.txt": "a.jpg\n",
        "text/Flickr_8k.devImages.txt": "b.jpg\n",
        **INNER,
    },
    "tars": {
        "train-000.tar": tar_of({"0.jpg": b"A", "0.txt": A}),
        "val-000.tar": tar_of({"1.jpg": b"B", "1.json": json.dumps({"caption": B})}),
    },
}


@pytest.mark.parametrize("form", SPLITS)
def test_a_file_per_split_is_read(tmp_path, form):
    found, splits, _ = everything(write(tmp_path, SPLITS[form]))
    assert list(found.values()) == [(A,), (B,)]
    assert list(splits.values()) == ["train", "dev"]


RESULTS = {
    "run": {"config.json": {"seed": 0}, "vocabulary.json": {"a": 1}, "data.json": {"a.jpg": A}},
    "inspection": {"inspect.json": {"skipped": {}}, "index.html": b""},
    "scores": {"report.json": {"a": 1}, "report.md": b"", "captions.json": [{"image_id": "a"}]},
}


@pytest.mark.parametrize("layout", ["hugging face", "pairs in folders"])
def test_results_that_lie_among_the_data_are_not_read(tmp_path, layout):
    results = {f"{name}/{f}": text for name, files in RESULTS.items() for f, text in files.items()}
    folder = write(tmp_path, SPLITS[layout] | results)
    assert list(everything(folder)[0].values()) == [(A,), (B,)]


def test_a_caption_beside_an_image_is_not_that_of_a_figure_drawn_of_it(tmp_path):
    folder = write(tmp_path, {"a.jpg": b"", "a.txt": A, "captions/a.png": b""})
    found = load("train", folder, held_out="0,0")
    assert [example.image_id for example in found.examples] == ["a.jpg"]
    assert found.uncaptioned == ("captions/a.png",)


def test_files_of_splits_may_be_named(tmp_path):
    folder = write(tmp_path, SPLITS["beside each other"] | {"more.csv": "image,caption\n"})
    with pytest.raises(DataError, match=r"found more.csv, train.csv, val.csv. Name .*FILE,FILE"):
        load("train", folder)
    for named in ("train.csv,val.csv", "[tv]*a*.csv"):
        assert everything(folder, captions=named)[1] == {"a.jpg": "train", "b.jpg": "dev"}
    with pytest.raises(
        DataError, match=r"no image of the test .*divide all of them: `--data.held-out"
    ):
        load("test", folder, captions="train.csv,val.csv")


def test_images_in_a_tar_are_read_from_it(tmp_path):
    texts = {"x/1.v1.txt": A, "x/2.txt": f"{B}\n{A}"}
    content = tar_of({"x/1.v1.jpg": b"first", "x/2.jpg": b"second"} | texts)
    folder = write(tmp_path, {"shard-0.tar": content})
    assert everything(folder)[0] == {"x/1.v1.jpg": (A,), "x/2.jpg": (B, A)}
    records = records_of(folder / "shard-0.tar")
    assert [record.stored.read_bytes() for record in records] == [b"first", b"second"]


def test_an_image_that_a_tar_holds_as_a_hard_link_is_read(tmp_path):
    source = write(tmp_path / "source", {"a.jpg": b"first", "a.txt": A, "b.txt": B})
    (source / "b.jpg").hardlink_to(source / "a.jpg")
    with tarfile.open(tmp_path / "c.tar", "w") as tar:
        for file in sorted(source.iterdir()):
            tar.add(file, file.name)
    records = records_of(tmp_path / "c.tar")
    assert [(r.image, r.captions, r.stored.read_bytes()) for r in records] == [
        ("a.jpg", (A,), b"first"),
        ("b.jpg", (B,), b"first"),
    ]


@pytest.mark.parametrize("inside", [True, False])
def test_parquet_is_read_with_images_or_names(tmp_path, inside):
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    def image(name):
        return {"bytes": name.encode(), "path": name} if inside else name

    rows = [
        {"image": image("a.jpg"), "caption": [A], "id": 1},
        {"image": image("b.jpg"), "caption": [B], "id": 2},
    ]
    for name, row in zip(("train", "validation"), rows, strict=True):
        path = tmp_path / "data" / f"{name}-00000-of-00001.parquet"
        path.parent.mkdir(exist_ok=True)
        parquet.write_table(pyarrow.Table.from_pylist([row]), path)
    if not inside:
        write(tmp_path, INNER)
    found, splits, _ = everything(tmp_path)
    assert found == BOTH and splits == {"a.jpg": "train", "b.jpg": "dev"}
    if inside:
        assert load("dev", tmp_path).examples[0].image.read_bytes() == b"b.jpg"


def test_a_file_that_two_names_could_mean_is_neithers(tmp_path):
    text = table("image,caption", f"a,{A}", f"a.jpg,{B}", f"x/b,{A}", f"y/b,{A}", f"c.jpg,{A}")
    folder = write(tmp_path, {"c.csv": text, "1/a.jpg": b"", "1/b.jpg": b"", "c.jpg": b""})
    used = []
    for name in ("train", "dev", "test"):
        try:
            used += [example.image_id for example in load(name, folder).examples]
        except DataError:
            continue
    assert used == ["c.jpg"]


def test_folders_without_dev_give_no_splits_and_are_named(tmp_path):
    files = {"c.csv": table("image,caption", f"a.jpg,{A}", f"b.jpg,{B}")}
    folder = write(tmp_path, files | {"train/a.jpg": b"", "test/b.jpg": b""})
    _, splits, notes = everything(folder)
    assert set(splits.values()) == {"train", "dev"}
    assert any("folders name only train and test: names divide" in note for note in notes)


def test_lists_of_a_split_beside_the_captions_are_honoured(tmp_path):
    dev = "b.jpg\n\u00fc.jpg\n".encode("latin-1")
    lists = {"Flickr_8k.trainImages.txt": "a.jpg\n", "Flickr_8k.devImages.txt": dev}
    tokens = {"Flickr8k.token.txt": f"a.jpg#0\t{A}\nb.jpg#0\t{B}\nc.jpg#0\tin no list\n"}
    found, splits, notes = everything(write(tmp_path, IMAGES | lists | tokens))
    assert found == BOTH and splits == {"a.jpg": "train", "b.jpg": "dev"}
    assert "1 images in none of them are left out" in notes[0]
    write(tmp_path, {"c.jpg": b""})
    (tmp_path / "Flickr_8k.devImages.txt").unlink()
    one = "Not read, as they list images of one split alone: Flickr_8k.trainImages.txt."
    assert one in everything(tmp_path)[2]


def test_images_may_be_named_by_another_table_with_the_same_key(tmp_path):
    tables = {
        "reports.csv": table("uid,image,findings", f"1,Chest PA,{A}", f"2,Chest,{B}"),
        "projections.csv": table("uid,filename", "1,a.jpg", "2,b.jpg", "", "3"),
        "empty.csv": "",
    }
    folder = write(tmp_path, INNER | tables)
    found, _, notes = everything(folder, captions="reports.csv")
    assert found == BOTH and "those of projections.csv with the same 'uid'" in notes[0]


@pytest.mark.parametrize(
    ("start", "end"),
    [("<start> ", " <end>"), ("startseq ", " endseq"), ("<S>", "</S>"), ("[START] ", " [END]")],
)
def test_marks_of_start_and_end_are_left_out_and_counted(tmp_path, start, end):
    rows = "".join(f"{name},{start}{text}{end}\n" for name, (text,) in BOTH.items())
    captions, _, notes = everything(write(tmp_path, IMAGES | {"c.csv": "image,caption\n" + rows}))
    assert captions == BOTH
    assert any("2 captions had marks of their start or end" in note for note in notes)


def test_nan_of_pandas_is_no_caption_and_marks_alone_are_a_blank_one(tmp_path):
    rows = [{"image": name, "caption": text, "split": "train"} for name, (text,) in BOTH.items()]
    rows += [{**rows[0], "caption": none} for none in (float("nan"), "<start> <end>")]
    split = load("train", write(tmp_path, IMAGES | {"c.json": rows}))
    assert {e.image_id: e.captions for e in split.examples} == BOTH
    assert split.blank_captions == 1
