#!/bin/sh
# One setting at a time over DINOv2, seed 1, on one GPU; dinov2.weights.h5 of dinov2.sh. Paired: the
# previous word (WORD_1 from SOFT_1) pointing game +4.2 [3.2, 5.1], small things +5.0 [3.7, 6.4], CIDEr
# +1.3 [-0.4, 3.2]; seven epochs (WORD_LONG_1 from WORD_1) +1.4 [0.6, 2.1], +1.7 [0.5, 2.9], CIDEr +3.3
# [0.8, 5.8], whose fifth epoch was kept; a layer of 1,024 +0.2 [-0.9, 1.2].
set -eu
train() {
  python -m training.train --data-dir "$DATA" --seed 1 --fit.precision bfloat16 \
      --fit.validation-images 200 --attention.penalty-weight 0 --decoder.bottleneck-dim 512 \
      --encoder.name keras_hub:dinov2_small --encoder.layer stage10 --encoder.image-size 196 \
      --encoder.weights dinov2.weights.h5 --decoder.annotation-dropout 0.2 \
      --decoder.embedding-dropout 0.4 --decoder.output-dropout 0.4 "$@"
}
soft() { train --recipe flickr8k_soft --fit.epochs 4 --run-dir "$@"; }
soft SOFT_1
soft STATE_1 --decoder.initial-layers 0
soft DROPPED_1 --decoder.annotation-dropout 0.5
soft UNSMOOTHED_1 --fit.label-smoothing 0
soft WORD_1 --decoder.attention-previous-word True
soft WORD_LONG_1 --decoder.attention-previous-word True --fit.epochs 7
soft WORD_WIDE_1 --decoder.attention-previous-word True --decoder.bottleneck-dim 1024
train --recipe flickr8k_hard --run-dir HALF_1 --init-from SOFT_1 --fit.epochs 1 \
    --optimizer.learning-rate 2e-4 --optimizer.warmup-epochs 0.1 \
    --attention.expectation-probability 0.5
for run in SOFT_1 STATE_1 DROPPED_1 UNSMOOTHED_1 HALF_1 WORD_1 WORD_LONG_1 WORD_WIDE_1; do
  python -m training.evaluate --run-dir $run --data-dir "$DATA" --boxes "$BOXES"
done
python -m training.compare SOFT_1 WORD_1 --data-dir "$DATA"
python -m training.compare WORD_1 WORD_LONG_1 WORD_WIDE_1 --data-dir "$DATA"
