"""Shared by the tests of the digit systems."""

from tests.digits.digit_fixtures import (  # noqa: F401  (fixtures, found by name)
    hard_digits_run,
    make_mnist,
    mnist,
    tiny_digits,
)
from tests.training.conftest import soft_run, tiny, unvalidated  # noqa: F401
