"""Peak memory: it stays when memory is freed, and is a process' own."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import pytest

from benchmarks.peak import peak_megabytes, peak_megabytes_of, resident_megabytes

GROW = """
import numpy
from benchmarks.peak import peak_megabytes
before = peak_megabytes()
ballast = numpy.ones(20_000_000)
grown = peak_megabytes()
del ballast
print(before, grown, peak_megabytes())
"""


def test_it_grows_by_what_is_held_and_stays_when_it_is_freed():
    # This process holds TensorFlow; the new one, forked from it, does not.
    done = subprocess.run([sys.executable, "-c", GROW], check=True, capture_output=True, text=True)
    before, grown, freed = map(float, done.stdout.split())
    assert before < 150
    assert 150 < grown - before < 200
    assert freed == pytest.approx(grown, rel=0.01)


def test_another_process_is_asked_by_its_number():
    assert peak_megabytes_of(os.getpid()) == pytest.approx(peak_megabytes(), rel=0.05)
    assert 0 < resident_megabytes(os.getpid()) <= peak_megabytes_of(os.getpid())
    assert peak_megabytes_of(2**30) is None and math.isnan(resident_megabytes(2**30))
