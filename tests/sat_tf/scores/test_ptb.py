"""The PTB tokens of captions: those of Stanford's program."""

import shutil

import pytest

from sat_tf.scores.ptb import split_words
from tests.sat_tf.scores.java_programs import jar_tokens

# Caption, tokens; "|" separates tokens with blanks around it.
CAPTIONS = [
    ("A dog's ball, isn't it?", "a dog 's ball is n't it"),
    ('Red-and-white (striped) "shirt" ...', "red-and-white -lrb- striped -rrb- shirt"),
    ("It costs $5 -- or £5, #5, 50%, 5¢!", "it costs $ 5 or # 5 # 5 50 % 5 cents"),
    ("He cannot, won't, gonna 'tis rock'n'roll", "he can not wo n't gon na 't is rock 'n' roll"),
    (
        "Mr. Smith vs. the U.S. team at 5 p.m. on no. 5",
        "mr. smith vs. the u.s. team at 5 p.m. on no. 5",
    ),
    ("in a boat.A man and/or a 3-year-old", "in a boat.a man and/or a 3-year-old"),
    (
        "1/2 of 3,000 at 10:30am, 1990s '90s 90's 2x4",
        "1/2 of 3,000 at 10:30 am 1990s '90s 90 's 2x4",
    ),
    (
        "the dogs' “toys” a‘b’ – … café AT&T R&B a+b @me",
        "the dogs toys a b café at&t r&b a + b @me",
    ),
    (
        "wow!!! a :) see www.foo.com, a@b.com <b>x</b>",
        "wow !!! a :-rrb- see www.foo.com a@b.com <b> x </b>",
    ),
    (
        "o'clock ma'am hawai'i y'all d'oh O'Neil rockin'",
        "o'clock ma'am hawai'i y' all d'oh o'neil rockin",
    ),
    ("a 😀 b ½ ⅛ x² [a] {b}", "a b 1/2 ⅛ x ² -lsb- a -rsb- -lcb- b -rcb-"),
    (" ... !? -- ", "!?"),
    ("", ""),
]


@pytest.mark.parametrize(("caption", "tokens"), CAPTIONS)
def test_captions_are_split_into_their_tokens(caption, tokens):
    assert " ".join(split_words(caption)) == tokens


@pytest.mark.skipif(shutil.which("java") is None, reason="needs Java")
def test_the_tokens_are_those_of_the_program():
    # Each caption with an end: the program lets a caption's tokens depend on the next line.
    lines = [f"{caption} ok" for caption, _ in CAPTIONS]
    assert [" ".join(split_words(line)) for line in lines] == jar_tokens(lines)
