#!/bin/sh
# Beams ranked by score or by consensus, length power 1; MEAN and BOXED_MEAN of
# resnet50_mobilenet_v2.sh, whose folder this needs. Both captioners together, against a beam of 5 by
# score: CIDEr +0.87 [0.04, 1.67] with consensus over a beam of 10, +1.27 [0.47, 2.09] over 20, +1.52
# [0.56, 2.42] over 50; METEOR -0.02 [-0.16, 0.13], +0.07 [-0.09, 0.23], +0.23 [0.06, 0.40]. Searching
# 1,000 images took 3.8, 6.1 and 10.3 s with beams of 5, 10 and 20.
set -eu
for run in MEAN BOXED_MEAN; do
  for beam in 5 10 20 50; do
    python -m training.evaluate --run-dir $run --data-dir "$DATA" --length-power 1.0 --beam $beam \
        --consensus 5 --out ${run}_$beam
  done
done
python -m training.compare MEAN_5 BOXED_MEAN_5 MEAN_20 BOXED_MEAN_20 --seeds 2 --data-dir "$DATA"
