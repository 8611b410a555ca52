"""Learning on: a run that starts from a captioner with other words."""

import dataclasses
import shutil

import numpy as np
import pytest

import sat_tf
from sat_tf.captioner import Captioner
from sat_tf.inference import load as runs
from sat_tf.inference.run_folder import read_config, read_vocabulary
from sat_tf.text.vocabulary import START, Vocabulary
from tests.training.data.own_images import encoded, photograph, write_csv, write_files
from tests.training.run.test_build import model_like
from tests.training.small_runs import read, train
from training.publish import main as publish
from training.run.first_weights import give_weights, start_from
from training.train import main, parse

OWN = "a red zebra near a blue okapi"


def rows_of(captioner: Captioner) -> np.ndarray:
    """Embedding, output and its bias of each word, side by side."""
    output = captioner.decoder.deep_output.word_projection
    parts = captioner.decoder.embedding.embeddings, output.kernel.numpy().T, output.bias[:, None]
    return np.concatenate([np.asarray(part) for part in parts], axis=1)


def learn_on(soft_run, words: Vocabulary, counts) -> tuple[Captioner, Captioner]:
    """The captioner of the run, and one of these words that starts from it."""
    ours = model_like(soft_run, len(words))
    start_from(soft_run, ours, words, counts=np.array(counts))
    return runs.load_captioner(soft_run).model, ours


def test_known_words_keep_their_rows_and_new_ones_are_the_mean_of_all(soft_run):
    known, words = read_vocabulary(soft_run), Vocabulary.from_captions([OWN], min_count=1)
    counts = [0, 2, 2, 0, *range(1, len(words) - 3)]
    theirs, ours = learn_on(soft_run, words, counts)
    before, after = rows_of(theirs), rows_of(ours)
    new = [n for n, word in enumerate(words.words) if word not in known.words]
    assert [words.words[n] for n in new] == ["near", "okapi", "zebra"]
    old = [n for n in range(len(words)) if n not in new]
    places = [known.words.index(words.words[n]) for n in old]
    np.testing.assert_array_equal(after[old], before[places])
    mean = np.broadcast_to(before[4:, :-1].mean(axis=0), (3, before.shape[1] - 1))
    np.testing.assert_allclose(after[new, :-1], mean, rtol=1e-5, atol=1e-7)
    seen = [n for n in old if counts[n] and n != START]
    per_count = np.mean(after[seen, -1] - np.log(np.take(counts, seen)))
    np.testing.assert_allclose(after[new, -1], per_count + np.log(np.take(counts, new)), rtol=1e-5)
    weights = theirs.decoder.weights, ours.decoder.weights
    pairs = [tuple(map(np.asarray, pair)) for pair in zip(*weights, strict=True)]
    others = [(one, other) for one, other in pairs if one.shape == other.shape]
    assert len(pairs) == len(others) + 3
    for one, other in others:
        np.testing.assert_array_equal(one, other)


@pytest.fixture
def own(tmp_path):
    """A folder of images with other words."""
    rows = [(f"{n}.jpg", OWN, "dev" if n < 2 else "train") for n in range(8)]
    folder = tmp_path / "own"
    folder.mkdir()
    write_csv(folder, rows, "image,caption,split")
    write_files(folder, {name: encoded(photograph(n)) for n, (name, *_) in enumerate(rows)})
    return folder


FLAGS = ("--recipe", "folder_soft", "--data.min_count", "1", "--fit.figures", "0")


def test_a_folder_learns_on_from_a_run_and_resumes_without_it(own, soft_run, tmp_path, unvalidated):
    first, run = shutil.copytree(soft_run, tmp_path / "first"), tmp_path / "run"
    flags = [*FLAGS, "--init-from", str(first), "--run-dir", str(run), "--fit.epochs"]
    said = []
    found = train(run, *flags, "1", data_dir=own, say=said.append)
    assert any("knows 3 of the 6 words" in line for line in said)  # a, blue and red
    assert {"zebra", "okapi"} <= set(sat_tf.load(run).vocabulary.words)
    assert found.config.encoder.name == "scenes_cnn" and found.config.decoder.hidden_dim == 16
    assert found.config.decoder.annotation_dropout == 0.5  # the recipe's
    shutil.rmtree(first)
    train(run, *flags, "2", data_dir=own, say=said.append)
    assert any(line.startswith("Resuming at epoch 2") for line in said)
    assert publish([str(run), str(tmp_path / "published")]) == 0
    assert sat_tf.load(tmp_path / "published").vocabulary == sat_tf.load(run).vocabulary


def test_words_that_the_captions_lack_stay_if_asked_for(own, soft_run, tmp_path, unvalidated):
    origin, run = shutil.copytree(soft_run, tmp_path / "first"), tmp_path / "run"
    theirs, flags = read_vocabulary(origin).words, [*FLAGS, "--init-from", str(origin)]
    flags += ["--keep-words", "True", "--run-dir", str(run), "--fit.epochs"]
    said = []
    train(run, *flags, "1", data_dir=own, say=said.append)
    assert any("knows 3 of the 6 words" in line for line in said)  # of those in the captions
    words = read_vocabulary(run).words
    assert set(words) == {*theirs, "zebra", "okapi", "near"}
    assert words[-3:] == tuple(word for word in theirs if word not in OWN.split())[-3:]
    shutil.rmtree(origin)
    _, resumed = read(run, *flags, "2", data_dir=own)
    assert resumed.data.vocabulary.words == words
    flags[flags.index(str(origin))] = str(soft_run)
    _, german = read(tmp_path / "de", *flags, "1", "--data.language", "de", data_dir=own)
    assert len(german.data.vocabulary) == 4 + 6


def test_captions_of_unknown_words_are_a_note_of_what_is_left(own, soft_run, tmp_path):
    (own / "captions.csv").write_text(
        "image,caption,split\n"
        + "".join(f"{n}.jpg,ein Hund,{'dev' if n < 2 else 'train'}\n" for n in range(8))
    )
    flags = [*FLAGS, "--init-from", str(soft_run)]
    _, found = read(tmp_path / "run", *flags, data_dir=own)
    model = model_like(soft_run, len(found.data.vocabulary))
    said = give_weights(str(soft_run), model, found.data)
    assert "knows 0 of the 2 words" in said
    assert "It gives encoder, attention and LSTM, and no word" in said


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("--decoder.hidden-dim", "17"), "`--decoder.hidden_dim`: expected 16, as in"),
        (("--encoder.name=mobilenet_v2",), "`--encoder.name`: expected scenes_cnn, as in"),
    ],
)
def test_a_flag_against_the_shape_of_the_origin_is_an_error(soft_run, capsys, flags, expected):
    assert main([*FLAGS, "--init-from", str(soft_run), *flags]) == 2
    said = capsys.readouterr().err
    assert expected in said and "(leave it out)" in said


def test_flags_that_fit_the_origin_win(soft_run):
    flags = ("--encoder.name", "ScenesCnn", "--encoder.image-size", "72")
    config = parse([*FLAGS, "--init-from", str(soft_run), *flags]).config
    theirs = read_config(soft_run)
    assert config.encoder.image_size == 72 and config.decoder.hidden_dim == 16
    named = dataclasses.replace(config.encoder, name="scenes_cnn", image_size=64)
    assert (named.layer, named.resize) == (theirs.encoder.layer, theirs.encoder.resize)
