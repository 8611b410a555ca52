#!/bin/sh
# Training step and search on two cores of an AMD EPYC (454 GFLOP/s in large float32 products, 815 in
# bfloat16), TensorFlow 2.21, Keras 3.15. Encoding: 122 images per second; reading a batch of 64: 0.9 %
# of a step. Peak memory in MB: imports 615, training 1,204 (baseline 1,382), search of 100 images 1,129.
set -eu
PYTHONPATH="$(dirname "$0")/.." python -m benchmarks.run --shapes flickr8k --batch-sizes 64 128 256 512 --repeats 5
PYTHONPATH="$(dirname "$0")/.." python -m benchmarks.run --shapes coco --only step search --batch-sizes 64 256
