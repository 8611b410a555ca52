#!/bin/sh
# The digit systems on MNIST. DATA holds mnist.npz as Keras has it. Dev is the last 5,000 training
# digits, which choose the best epoch; no choice was based on the test digits.
set -eu
train() { python -m digits.train --data-dir "$DATA" "$@"; }
for recipe in digits_queries digits_queries_hard digits_soft digits_hard stn_rotated \
    ram_28 ram_60_translated dram_pairs dram_pairs_no_context; do
  train --recipe $recipe
done
train --recipe stn_rts --fit.precision bfloat16
train --recipe stn_cluttered --fit.precision bfloat16
train --recipe ram_60_cluttered --fit.epochs 60
for recipe in digits_queries digits_queries_hard digits_soft digits_hard stn_rotated stn_rts \
    stn_cluttered ram_28 ram_60_translated ram_60_cluttered dram_pairs dram_pairs_no_context; do
  python -m digits.evaluate --run-dir runs/$recipe --data-dir "$DATA" --split test
done
for seed in 1 2; do
  for recipe in dram_pairs dram_pairs_no_context; do
    train --recipe $recipe --seed $seed --run-dir runs/${recipe}_$seed
  done
done
# cnn_cluttered, ram_pairs, sums, random glimpses, those of an oracle, and portions without attention are
# results of commit 8563600a.
