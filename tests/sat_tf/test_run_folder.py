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
