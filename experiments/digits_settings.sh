#!/bin/sh
# Settings of the digit systems that were worse than, or no better than, those of digits.sh; error on
# dev in percent. DATA holds mnist.npz.
set -eu
train() { python -m digits.train --data-dir "$DATA" "$@"; }
train --recipe stn_cluttered --model.localisation-filters 20 --model.localisation-points 8 \
    --run-dir runs/stn_points
train --recipe stn_rotated --fit.batch-size 128 --run-dir runs/stn_batch
train --recipe cnn_cluttered --data.size 28 --data.clutter 4 --run-dir runs/cnn_crop
train --recipe ram_28 --model.first-location random --data.shift 1 --data.turn 0 \
    --run-dir runs/ram_random_first
train --recipe ram_60_translated --fit.epochs 60 --run-dir runs/ram_60_short
train --recipe dram_pairs --single-epochs 0 --run-dir runs/dram_no_single
