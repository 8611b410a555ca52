"""The evaluation command: another split, another search, the user's own folder."""

import json
import shutil

import pytest

from tests.training.small_runs import exit_of, report_of
from training.evaluate import main
from training.publish import main as publish


def evaluated(run_dir, out, *flags: str) -> dict:
    assert main(["--run-dir", str(run_dir), "--out", str(out), *flags]) == 0
    return report_of(out)


def test_it_finds_the_scores_the_training_ended_with(soft_run, tmp_path, capsys):
    again = evaluated(soft_run, tmp_path / "out", "--figures", "1")
    first = report_of(soft_run / "evaluation" / "dev")
    assert again["scores"] == pytest.approx(first["scores"], abs=1e-4)
    assert again["split_fingerprint"] == first["split_fingerprint"]
    assert (tmp_path / "out" / "index.html").read_text().count('"hypotheses"') == 1
    said = capsys.readouterr().out
    assert "Captioning 12 images, beam 2 ...\nScoring 12 captions ..." in said
    assert "bleu_4" in said and "bleu_4_no_bp" not in said and "Note: METEOR is left out" in said
    captions = json.loads((tmp_path / "out" / "captions.json").read_text())[:3]
    assert all(f"  {row['image_id']}: {row['caption']}\n" in said for row in captions)
    assert f"Page: {tmp_path / 'out' / 'index.html'}" in said


def test_beam_length_power_and_split_are_the_command_line_s(hard_run, tmp_path):
    flags = ("--split", "test", "--beam", "1", "--length-power", "0.5", "--inference", "argmax")
    flags += ("--consensus", "2", "--figures", "0", "--bound-images", "0")
    report = evaluated(hard_run, tmp_path, *flags)
    assert "bounds" not in report
    assert (report["split"], report["search"]["beam"]) == ("test", 1)
    assert (report["search"]["length_power"], report["search"]["attention"]) == (0.5, "argmax")
    assert report["search"]["consensus"] == 2.0
    assert (hard_run / "evaluation" / "dev" / "report.json").exists()
    assert not (hard_run / "evaluation" / "test").exists()


def test_hard_attention_is_reported_with_its_bounds(hard_run, soft_run, tmp_path, capsys):
    again = evaluated(hard_run, tmp_path, "--figures", "0", "--bound-images", "3")["bounds"]
    assert (again["images"], again["samples"]) == (3, 50)
    weighted = [again[f"importance_weighted_bound_{m}"] for m in (5, 50)]
    assert again["elbo"] <= weighted[0] <= weighted[1] < 0.0
    said = capsys.readouterr().out
    assert "3 images with one caption each" in said
    assert "nwgm_gap" in said and "importance_weighted_bound_50" in said
    # Every image where there are fewer; nothing of the kind for soft attention.
    assert report_of(hard_run / "evaluation" / "dev")["bounds"]["images"] == 12
    assert "bounds" not in report_of(soft_run / "evaluation" / "dev")


def test_a_folder_with_a_test_list_only_can_be_evaluated_on_without_weights_file_and_cache(
    photographs, tmp_path, make_photographs
):
    data_dir = make_photographs(tmp_path / "flickr8k", ("test",))
    (data_dir / "Flicker8k_Dataset" / "test1.jpg").write_bytes(b"no image")
    run = shutil.copytree(photographs.run_dir, tmp_path / "run")
    flags = ["--run-dir", str(run), "--data-dir", str(data_dir), "--split", "test"]
    assert main([*flags, "--cache-dir", str(tmp_path / "cache")]) == 0
    report = report_of(run / "evaluation" / "test")
    assert report["images"] == 2 and list(report["skipped"]) == ["test1.jpg"]
    assert report["scores"]["nll"] > 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--split", "middle", "--data-dir", "DIR"), "`split`"),
        (("--split", "dev", "--data-dir", "DIR", "--bound-images", "-1"), "`--bound-images`"),
        (("--inference", "argmax"), "(`--inference`): expected none for soft attention"),
        (("--bound-images", "5"), "`--bound-images`: expected none for soft attention"),
    ],
)
def test_wrong_arguments_are_errors_that_name_them(photographs, capsys, flags, message):
    flags = [flag.replace("DIR", str(photographs.data_dir)) for flag in flags]
    places = ["--run-dir", photographs.run_dir, "--cache-dir", photographs.cache_dir]
    status, said = exit_of(capsys, main, *places, *flags)
    assert status == 2 and message in said and "Traceback" not in said


@pytest.mark.parametrize("model", ["ram_28", "digits/shipped/ram_28"])
def test_a_digit_model_is_neither_evaluated_nor_published_here(tmp_path, capsys, model):
    for argv in ([main, "--run-dir", model], [publish, model, tmp_path / "out"]):
        status, said = exit_of(capsys, *argv)
        assert status == 2 and "Error: " in said and not (tmp_path / "out").exists()
