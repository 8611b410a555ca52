"""Starting from the weights of another run: fine-tuning after training on a frozen encoder."""

from __future__ import annotations

from pathlib import Path

import keras

from sat_tf import runs
from sat_tf.models.captioner import Captioner
from sat_tf.vocabulary import Vocabulary


def start_from(
    run_dir: Path, model: Captioner, vocabulary: Vocabulary, asked_by: str = "key `--init-from`"
) -> None:
    """Gives a captioner the best weights of a finished run, the encoder's among them.

    Args:
        run_dir: The finished run (`--init-from`).
        model: The captioner; its weights have to have the same shapes.
        vocabulary: Its words; they have to be the same.
        asked_by: The key or argument that names the run, for the error.

    Raises:
        RunError: The folder is no finished run, or one of another vocabulary or other shapes.
    """
    try:
        words = runs.read_vocabulary(run_dir)
        if words != vocabulary:
            raise runs.RunError(_other_words(words, vocabulary))
        found = runs.load(run_dir).model
        pairs = _pairs(found, model)
    except runs.RunError as error:
        raise runs.RunError(
            f"Received an invalid value for {asked_by}: expected a finished run with the "
            f"vocabulary and the shapes of this one, got {str(run_dir)!r}: {error}"
        ) from error
    for theirs, ours in pairs:
        ours.assign(theirs.numpy())


def _pairs(found: Captioner, model: Captioner) -> list[tuple[keras.Variable, keras.Variable]]:
    """The weights of two captioners that stand for the same.

    The optimiser's state and the baseline are not among them: they belong to a run.
    """
    pairs = []
    for part in ("encoder", "decoder"):
        theirs, ours = getattr(found, part).weights, getattr(model, part).weights
        if len(theirs) != len(ours):
            raise runs.RunError(f"its {part} has {len(theirs)} weights, this one {len(ours)}.")
        pairs += zip(theirs, ours, strict=True)
    for theirs, ours in pairs:
        if theirs.shape != ours.shape:
            raise runs.RunError(
                f"its weight {theirs.path} is {_size(theirs)}, this one {_size(ours)}."
            )
    return pairs


def _size(variable: keras.Variable) -> str:
    return " x ".join(map(str, variable.shape))


def _other_words(theirs: Vocabulary, ours: Vocabulary) -> str:
    known, new = set(theirs.words), set(ours.words)
    differing = sorted(known ^ new)
    which = f"{differing[0]!r}, for one, is in one alone" if differing else "their order differs"
    return (
        f"it has {len(theirs)} words, the captions to train on {len(ours)} ({which}). The same "
        "captions, `--data.tokens`, `--data.min_count` and `--data.vocabulary_size` give the same."
    )
