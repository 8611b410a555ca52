"""Sentences on data that are too few or too alike, and the command that follows."""

import dataclasses
from pathlib import Path

import pytest

from sat_tf.inference.run_folder import RunFolder
from sat_tf.text.vocabulary import Vocabulary
from sat_tf.util.fields import flat, to_dict
from tests.training.data.own_images import write_csv, write_files
from training import little_data
from training.data.captions import Amount, Rows
from training.little_data import LEARN_ON
from training.run.ownership import claim, data_records
from training.run.recipes import NEW_WORDS, RECIPES
from training.train import parse

FOLDER = RECIPES["folder_soft"]
LEARNING_ON = dataclasses.replace(FOLDER, init_from="flickr8k_soft")


def sentences(found, config):
    return little_data.sentences(found, config.data, config.init_from)


def next_command(found, config, *rest) -> str:
    return little_data.next_command(found, config.data, flat(to_dict(config)), *rest)


def after_training(folder, config, data_dir):
    return little_data.after_training(folder, config.data, flat(to_dict(config)), data_dir)


def amount(images: int, **changes) -> Amount:
    return dataclasses.replace(Amount(images, 5 * images, 5 * images, 0.2), **changes)


@pytest.mark.parametrize(
    ("config", "images", "said"),
    [
        (FOLDER, 48, "48 training images are too few to expect sentences"),
        (FOLDER, 400, "400 training images are few: expect short, common"),
        (LEARNING_ON, 40, "40 training images are few even to fine-tune flickr8k_soft"),
    ],
)
def test_few_images_are_said_to_be_few_with_what_helps(config, images, said):
    (sentence,) = sentences(amount(images), config)
    assert sentence.startswith(said) and "more images" in sentence.lower()
    assert (LEARN_ON in sentence) == (config is FOLDER)
    assert list(sentences(amount(1500), FOLDER)) == list(sentences(amount(60), LEARNING_ON)) == []


def test_another_language_has_no_sentences_of_the_captioner_that_ships():
    config = parse(["--recipe", LEARN_ON, "--data.language", "pt"]).config
    (sentence,) = sentences(amount(40), config)
    assert "expect frequent words, repeated. More images help most" in sentence


def test_captions_are_counted():
    found = Amount.of(2, Rows.of([[0, 1], [0, 1], [0, 2, 3, 4], []]))
    assert found == Amount(2, 3, 2, round(5 / 8, 4))


@pytest.mark.parametrize("changes", [{"distinct": 200}, {"common": 0.7}])
def test_captions_that_are_nearly_alike_are_named(changes):
    (sentence,) = sentences(amount(2000, **changes), FOLDER)
    assert "nearly alike" in sentence and "Describe what differs" in sentence


def test_captions_too_few_to_compare_are_not_called_alike():
    (sentence,) = sentences(Amount(2, 2, 2, common=1.0), FOLDER)
    assert "alike" not in sentence


def test_the_next_command_has_the_flags_that_were_given():
    flags = ["--recipe", "folder_soft", "--data.min-count", "1", "--encoder.name", "resnet50"]
    flags += ["--data.columns", "image=my file"]
    config, data_dir = parse(flags).config, Path("my data")
    command = next_command(amount(2000), config, data_dir)
    assert command == (
        "python -m training.train --recipe folder_soft --data-dir 'my data' "
        "--data.columns 'image=my file' --data.min-count 1 --encoder.name resnet50"
    )
    assert next_command(amount(200), config, data_dir) == (
        f"python -m training.train --recipe {LEARN_ON} --data-dir 'my data' "
        "--data.columns 'image=my file' --data.min-count 1"
    )
    # Without the encoder's weights, one that ships serves; the data sets have none like it.
    assert f"--recipe {LEARN_ON} " in next_command(amount(2000), config, data_dir, True)
    other = parse(["--recipe", "flickr8k_soft"]).config
    assert next_command(amount(2000), other, data_dir, True).endswith("--encoder.weights FILE")


@pytest.mark.parametrize(
    ("flags", "best"),
    [
        (("--data.language", "pt"), True),
        (("--data.tokens", "characters"), True),
        (("--data.language", "en-GB"), False),
        (("--recipe", LEARN_ON, "--data.language", "de"), True),
        (("--recipe", LEARN_ON, "--data.language", "de", "--fit.epochs", "9"), False),
        (("--recipe", LEARN_ON, "--data.language", "de", "--init-from", "runs/de"), False),
    ],
)
def test_learning_on_in_new_words_has_the_settings_that_were_best_for_it(flags, best):
    command = next_command(amount(60), parse(["--recipe", "folder_soft", *flags]).config, None)
    assert command.endswith(" ".join(NEW_WORDS)) == best


def test_a_run_says_at_its_end_what_its_record_tells(tmp_path):
    folder, vocabulary = RunFolder(tmp_path), Vocabulary.from_captions(["a dot"], min_count=1)
    claim(tmp_path, "{}", records=data_records(folder, vocabulary, {}, amount(48)))
    warning, following = after_training(folder, FOLDER, tmp_path)
    assert warning.startswith("Warning: 48 training images are too few")
    assert following.startswith(f"Next: python -m training.train --recipe {LEARN_ON}")
    claim(tmp_path, "{}", records=data_records(folder, vocabulary, {}, amount(2000)))
    rows = [(f"{n}.jpg", "a dot", split) for n, split in enumerate(("train", "dev", "test"))]
    write_csv(tmp_path, rows, "image,caption,split")
    write_files(tmp_path, {name: b"" for name, *_ in rows})
    (following,) = after_training(folder, FOLDER, tmp_path)
    assert following == f"Next: python -m training.evaluate --run-dir {tmp_path} --split test"
    write_csv(tmp_path, rows[:2], "image,caption,split")
    (following,) = after_training(folder, FOLDER, tmp_path)
    assert following.startswith("There is no test image")
    assert list(after_training(folder, RECIPES["scenes_soft"], None)) == []
