"""Names of the files in a run's folder, which older folders rely on."""

from pathlib import Path

from sat_tf.run_folder import RunFolder


def test_file_names_stay_those_of_older_runs():
    folder = RunFolder("runs/one")
    names = {
        folder.config: "config.json",
        folder.vocabulary: "vocabulary.json",
        folder.best_weights: "best.weights.h5",
        folder.average: "average.json",
        folder.data: "data.json",
        folder.digits: "digits.sha256",
        folder.lock: ".lock",
        folder.checkpoints: "checkpoints",
        folder.logs: "logs",
        folder.export: "export",
        folder.evaluation("test"): "evaluation/test",
    }
    assert {path.relative_to("runs/one").as_posix() for path in names} == set(names.values())
    assert all(path == Path("runs/one") / name for path, name in names.items())


def test_skipped_images_have_a_file_per_split():
    # Nothing reads it back, so that of an older run may have another name.
    path = RunFolder("runs/one").skipped("train")
    assert path == Path("runs/one/skipped_train.json")


def test_a_run_folder_stands_for_its_path():
    folder = RunFolder(Path("runs/one"))
    assert Path(folder) == folder.path == Path("runs/one")
    assert str(folder) == "runs/one"
    assert folder == RunFolder("runs/one")
