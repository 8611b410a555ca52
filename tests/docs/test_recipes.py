"""The recipes of docs/data.md: each turns a file of its kind into captions that are read."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.data.readers.folders import everything, write

pytest.importorskip("pandas")

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "data.md").read_text("utf-8")
RECIPES = dict(re.findall(r"^#### (.*?)\n(?:(?!^#).*\n)*?```python\n((?:.*\n)*?)```$", PAGE, re.M))
A, B = "a red ball, on the grass", "two dogs run home"
BOTH = {"a": (A,), "b": (B,)}


def answer(name: str, text: str) -> dict:
    return {"name": name, "text_answer": {"content": text}}


def labelbox(name: str, text: str) -> dict:
    asked = [{"name": "Weather", "radio_answer": {"name": "Sunny"}}, answer("Caption", text)]
    label = {"annotations": {"classifications": asked}}
    return {"data_row": {"external_id": name}, "projects": {"p": {"labels": [label]}}}


def label_studio(name: str, text: str) -> dict:
    results = [
        {"from_name": "scene", "value": {"choices": ["day"]}},
        {"from_name": "caption", "value": {"text": [text]}},
    ]
    image = f"/data/upload/1/0a1b2c3d-{name}"
    return {"data": {"image": image}, "annotations": [{"result": results}]}


def supervisely(text: str) -> dict:
    return {"tags": [{"name": "place", "value": "a wood"}, {"name": "caption", "value": text}]}


def cvat(name: str, text: str) -> str:
    told = f'<attribute name="caption">{text}</attribute><attribute name="no">1</attribute>'
    return f'<image name="{name}"><tag label="image">{told}</tag></image>'


def xmp(text: str) -> str:
    rdf = 'xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"'
    return (
        f'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF {rdf} '
        'xmlns:dc="http://purl.org/dc/elements/1.1/"><rdf:Description><dc:description><rdf:Alt>'
        f'<rdf:li xml:lang="x-default">{text}</rdf:li></rdf:Alt></dc:description>'
        "</rdf:Description></rdf:RDF></x:xmpmeta>"
    )


def llava(name: str, text: str) -> dict:
    turns = [("human", "<image>\nDescribe."), ("gpt", text), ("human", "More?"), ("gpt", "No.")]
    return {"image": name, "conversations": [{"from": who, "value": said} for who, said in turns]}


def openai(name: str, text: str) -> dict:
    asked = [{"type": "text", "text": "?"}, {"type": "image_url", "image_url": {"url": name}}]
    return {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": asked},
            {"role": "assistant", "content": text},
        ]
    }


def sheet(path: Path) -> None:
    from openpyxl import Workbook

    book = Workbook()
    for row in (("image", "caption"), ("a.jpg", A), (None, B), ("b.jpg", B)):
        book.active.append(row)
    book.active.merge_cells("A2:A3")
    book.save(path)


FILES = {"a.jpg": A, "b.jpg": B}
ALL = {
    "Label Studio": {"export.json": [label_studio(*one) for one in FILES.items()]},
    "Labelbox": {
        "export.ndjson": "".join(json.dumps(labelbox(*one)) + "\n" for one in FILES.items())
    },
    "CVAT": {"annotations.xml": f"<a>{''.join(cvat(*one) for one in FILES.items())}</a>"},
    "VIA": {
        "via_project.json": {
            "_via_img_metadata": {
                name: {"filename": name, "file_attributes": {"caption": text, "mood": "calm"}}
                for name, text in FILES.items()
            }
        }
    },
    "Supervisely": {f"ds0/ann/{name}.json": supervisely(text) for name, text in FILES.items()},
    "FiftyOne": {
        "samples.json": {
            "samples": [
                {"filepath": f"/x/{name}", "caption": text, "tags": ["nice", split]}
                for (name, text), split in zip(FILES.items(), ("train", "validation"), strict=True)
            ]
        }
    },
    "LLaVA's chats": {"chats.json": [llava(*one) for one in FILES.items()]},
    "OpenAI's chats": {
        "chats.jsonl": "".join(json.dumps(openai(*one)) + "\n" for one in FILES.items())
    },
    "Excel": {},
    "Nested JSON": {
        "photos.json": {
            "data": {"photos": [{"file": {"name": n}, "texts": [t]} for n, t in FILES.items()]}
        }
    },
    "Captions by name": {
        "by_name.json": f'{{"a.jpg": {json.dumps([A])}, "a.jpg": "{B}", "b.jpg": "{B}"}}'
    },
    "XMP": {"a.xmp": xmp(A), "b.jpg.xmp": xmp(B)},
    "Lists in cells": {
        "lists.csv": f'image,captions\na.jpg,"[\'{A}\' nan]"\nb.jpg,"{{\'{B}\', ""a dog\'s""}}"\n'
    },
    "Several captions in a cell": {"joined.csv": f'image,caption\na.jpg,"{A}"\nb.jpg,{B}|{B}\n'},
    "Several images in a row": {
        "pairs.csv": f'id,image_0,image_1,caption_0,caption_1\n1,a.jpg,b.jpg,"{A}",{B}\n'
    },
    "Numbered folds": {"folds.csv": f'image,caption,split\na.jpg,"{A}",0\nb.jpg,{B},8\n'},
}
WANTED = {
    "Excel": {"a": (A, B), "b": (B,)},
    "Captions by name": {"a": (A, B), "b": (B,)},
    "Lists in cells": {"a": (A,), "b": (B, "a dog's")},
    "Several captions in a cell": {"a": (A,), "b": (B, B)},
}


def test_each_recipe_is_tried():
    assert RECIPES.keys() == ALL.keys()


def read_after(recipe: str, folder: Path) -> tuple[dict, dict]:
    home = Path(sys.modules["pandas"].__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(home), *sys.path])}
    subprocess.run(
        [sys.executable, "-c", recipe], cwd=folder, env=environment, check=True, timeout=120
    )
    captions, splits, _ = everything(folder, captions="captions.csv")
    stem = {name: os.path.splitext(name)[0] for name in captions}
    return {stem[n]: c for n, c in captions.items()}, {stem[n]: s for n, s in splits.items()}


@pytest.mark.parametrize("name", ALL)
def test_a_recipe_gives_captions_that_are_read(tmp_path, name):
    images = {f"ds0/img/{image}": b"" for image in FILES} if name == "Supervisely" else FILES
    write(tmp_path, dict.fromkeys(images, b"") | ALL[name])
    if name == "Excel":
        sheet(tmp_path / "captions.xlsx")
    captions, splits = read_after(RECIPES[name], tmp_path)
    assert captions == WANTED.get(name, BOTH)
    if name in ("FiftyOne", "Numbered folds"):
        assert splits == {"a": "train", "b": "dev"}


def test_the_words_of_a_caption_are_joined(tmp_path):
    words = str(A.replace(",", "").split())
    write(tmp_path, {"a.jpg": b"", "lists.csv": f'image,captions\na.jpg,"{words}"\n'})
    assert read_after(RECIPES["Lists in cells"], tmp_path)[0] == {"a": (A.replace(",", ""),)}
