"""Records of training images through every command that makes or reads a captioner."""

import json
import shutil

from sat_tf.run_folder import RunFolder
from tests.training.small_runs import report_of, train
from training import average, compare, distill, publish
from training.config import read_run_config
from training.data.examples import Example
from training.data.overlap import UNCHECKED, find_overlap
from training.data.seen_images import SeenImages, read_seen
from training.data.sources import load_split
from training.evaluate.command import main as evaluated
from training.teach import open_archive

LIMIT = 12


def sources(folder) -> list[tuple[str, int]]:
    return [(source.name, source.images) for source in read_seen(folder).sources]


def score(run, tmp_path, split: str, name: str = "out") -> dict:
    out, flags = tmp_path / name, ("--figures", "0", "--cache-dir", str(tmp_path / "cache"))
    assert evaluated(["--run-dir", str(run), "--split", split, "--out", str(out), *flags]) == 0
    return report_of(out)


def test_training_images_are_counted_and_others_are_clean(soft_run, tmp_path, capsys):
    report = score(soft_run, tmp_path, "train")
    sentence = "12 of 12 images are among those that the captioner learned from, 12 by content"
    assert report["notes"][0].startswith(sentence)
    assert report["seen_in_training"]["seen"] == LIMIT == len(report["seen_in_training"]["images"])
    assert f"Warning: {sentence}" in capsys.readouterr().out
    clean = report_of(soft_run / "evaluation" / "dev")
    found = clean["seen_in_training"] | {"notes": 0}
    assert found == {"seen": 0, "by": {}, "images": [], "notes": 0}
    assert not any("training" in note and "learned" in note for note in clean["notes"])


def test_photographs_have_their_usable_images_recorded(photographs):
    (source,) = read_seen(photographs.run_dir).sources
    assert source.images == 5  # one is no image
    data = read_run_config(photographs.run_dir).data
    for split, count in (("train", 5), ("dev", 0), ("test", 0)):
        examples = load_split(data, split, photographs.data_dir).examples
        assert len(find_overlap(read_seen(photographs.run_dir), examples, data.name).found) == count


def test_a_run_without_a_record_is_not_refused_but_not_checked(soft_run, tmp_path, capsys):
    old = tmp_path / "old"
    shutil.copytree(soft_run, old)
    (old / "training_images.json").unlink()
    report = score(old, tmp_path, "dev")
    assert report["notes"][0] == UNCHECKED and "seen_in_training" not in report
    capsys.readouterr()
    assert compare.main([str(soft_run), str(tmp_path / "out")]) == 0
    assert f"Note on B: {UNCHECKED}" in capsys.readouterr().out


def test_a_published_captioner_keeps_the_record_alone_or_shared(soft_run, tmp_path):
    for name, flags in (("own", ()), ("shared", ("--share-encoder",))):
        out = tmp_path / name
        assert publish.main([str(soft_run), str(out), *flags]) == 0
        assert sources(out) == [("", LIMIT)]
        assert (out / "training_images.json").exists() == (name == "own")
    for path in (*tmp_path.glob("training_images-*"), tmp_path / "own" / "training_images.json"):
        path.write_text("{}")
    assert read_seen(tmp_path / "own") is None  # not those of its manifest


def test_what_a_run_starts_from_is_recorded_with_it(soft_run, tmp_path, tiny, unvalidated):
    first, run = tmp_path / "first", tmp_path / "run"
    shutil.copytree(soft_run, first)
    photograph = Example("2903617548_d3e38d7f88.jpg", tmp_path / "gone.jpg", ())
    seen = SeenImages.of([photograph], "flickr8k")
    RunFolder(first).training_images.write_bytes(seen.content())
    train(run, *tiny, "--init-from", str(first))
    assert sources(run) == [("", LIMIT), ("first", 1)]
    assert dict(find_overlap(read_seen(run), [photograph], "flickr8k").found) == {
        photograph.image_id: "first"
    }
    record = (run / "training_images.json").read_bytes()
    shutil.rmtree(first)
    train(run, *tiny, "--init-from", str(first))  # resumed; where it started from is gone
    assert (run / "training_images.json").read_bytes() == record


def test_averages_predictions_and_locators_say_what_they_learned_from(soft_run, tmp_path, tiny):
    copy, mean = tmp_path / "copy", tmp_path / "mean"
    shutil.copytree(soft_run, copy)
    config = json.loads((copy / "config.json").read_text()) | {"init_from": str(soft_run)}
    (copy / "config.json").write_text(json.dumps(config))
    assert average.main([str(soft_run), str(copy), "--run-dir", str(mean)]) == 0
    assert sources(mean) == [(soft_run.name, LIMIT)]
    out, cache = tmp_path / "predictions.npz", ("--cache-dir", str(tmp_path / "cache"))
    assert distill.main([str(soft_run), "--out", str(out), *cache]) == 0
    with open_archive(out, 1, "holds no predictions") as (*_, seen):
        assert [one.name for one in seen.sources] == [soft_run.name]


def test_boxes_of_training_images_are_counted_among_them(photographs, tmp_path):
    row = {"caption": 0, "phrase": "A trainword dog", "span": [0, 3], "boxes": [[0, 0, 0.9, 0.9]]}
    rows = [json.dumps(row | {"image": f"train{n}.jpg"}) for n in (0, 1)]
    (tmp_path / "boxes.jsonl").write_text("\n".join(rows))
    flags = ["--run-dir", photographs.run_dir, "--data-dir", photographs.data_dir]
    flags += ["--cache-dir", photographs.cache_dir, "--figures", "0", "--split", "train"]
    flags += ["--boxes", tmp_path / "boxes.jsonl", "--out", tmp_path / "out"]
    assert evaluated([*map(str, flags)]) == 0
    note = report_of(tmp_path / "out")["notes"][0]
    assert note.startswith("5 of 6 images are among those that the captioner learned from")
    assert note.endswith("Of the 2 images with boxes, 2 are among them.")
