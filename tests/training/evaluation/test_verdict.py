"""The verdict in words: do captions differ, and fit their own images?"""

import pytest

from sat_tf.scores.tokens import split_captions
from training.evaluation.scores import verdict

NAMES = [f"thing{n}" for n in range(12)]
REFERENCES = {name: [f"a {name} stands here", "something"] for name in NAMES}


def said_of(captions: dict[str, str], references: dict[str, list[str]]) -> tuple[str, ...]:
    of_each = [references[name] for name in captions]
    return verdict(captions, *split_captions("simple", [*captions.values()], of_each))


@pytest.mark.parametrize(("images", "same", "warned"), [(20, 19, 1), (4, 4, 0)])
def test_captions_that_are_nearly_all_the_same_are_warned_of(images, same, warned):
    texts = ["a dog"] * same + [f"dog {n}" for n in range(images - same)]
    captions = {str(n): text for n, text in enumerate(texts)}
    notes = said_of(captions, {name: ["a cat"] for name in captions})
    assert len(notes) == warned
    for note in notes:
        assert note.startswith("95 % of the images get the same caption, 'a dog': train longer")


def test_captions_that_name_what_their_images_show_fit_them():
    captions = {name: f"a {name}" for name in NAMES}
    (said,) = said_of(captions, REFERENCES)
    assert said == (
        "The captions fit their own images: 100 % of the words of a caption are in the references "
        "of its image, 50 % in those of another."
    )


def test_captions_of_other_images_are_told():
    captions = {name: f"a {NAMES[n - 2]}" for n, name in enumerate(NAMES)}
    (said,) = said_of(captions, REFERENCES)
    assert said.startswith("The captions fit other images as well: 50 % of the words")
    assert said.endswith("Train longer or add data.")


def test_a_small_gain_is_told_as_one_however_certain_it_is():
    """Words that fit every image are not counted for it."""
    names = [f"thing{n}" for n in range(400)]
    references = {name: [f"a {name} stands here"] for name in names}
    for right, said in (
        (100, "hardly depend on the image: 56 % of"),
        (300, "fit their own images"),
    ):
        captions = {n: f"a {n if k < right else 'dog'} stands {k}" for k, n in enumerate(names)}
        (note,) = said_of(captions, references)
        assert note.startswith(f"The captions {said}"), note
