#!/bin/sh
# The digit systems on MNIST. DATA holds mnist.npz as Keras has it. Dev is the last 5,000 training
# digits, which choose the best epoch; no choice was based on the test digits.
set -eu
train() { python -m digits.train --data-dir "$DATA" "$@"; }
for recipe in digits_queries digits_queries_hard digits_soft digits_hard stn_rotated cnn_cluttered \
    ram_28 ram_60_translated dram_pairs dram_pairs_no_context ram_pairs; do
  train --recipe $recipe
done
train --recipe stn_rts --fit.precision bfloat16
train --recipe stn_cluttered --fit.precision bfloat16
train --recipe ram_60_cluttered --fit.epochs 60
train --recipe dram_addition --init-from runs/dram_pairs --fit.epochs 4
train --recipe convnet_addition --fit.precision bfloat16
for recipe in digits_queries digits_queries_hard digits_soft digits_hard stn_rotated stn_rts \
    stn_cluttered cnn_cluttered ram_28 ram_60_translated ram_60_cluttered dram_pairs \
    dram_pairs_no_context ram_pairs dram_addition convnet_addition; do
  python -m digits.evaluate --run-dir runs/$recipe --data-dir "$DATA" --split test
done
for seed in 1 2; do
  for recipe in dram_pairs dram_pairs_no_context ram_pairs; do
    train --recipe $recipe --seed $seed --run-dir runs/${recipe}_$seed
  done
done
# Random glimpses, in training and evaluation. Those of an oracle, and portions without attention, are
# results of commit 8563600a.
for locations in learned random; do
  train --recipe ram_28 --fit.epochs 40 --model.locations $locations --run-dir runs/ram_$locations
  train --recipe dram_digit --model.locations $locations --run-dir runs/dram_$locations
done
