#!/bin/sh
# The recipe flickr8k_soft as typed: ResNet50, soft attention, no teacher. Seed 0, float32.
# It takes 44 minutes of processor time, from empty caches to the report.
set -eu
python -m training.train --recipe flickr8k_soft --data-dir "$DATA"
