#!/bin/sh
# Estimators of hard attention on drawn scenes: three epochs, mean and standard deviation of three
# seeds.
set -eu
python -m benchmarks.estimators
