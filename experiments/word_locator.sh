#!/bin/sh
# Attention taught by a word locator, which learns from the captions alone; DINOv2 beside MobileNetV2;
# attention reads the previous word. Hard attention by VIMCO, for one more epoch. Three seeds. A seed
# takes 15 minutes on two cores once annotations are stored.
set -eu
pair() {
  "$@" --data-dir "$DATA" --encoder.name keras_hub:dinov2_small+mobilenet_v2 \
      --encoder.layer stage10+block_16_project_BN --encoder.image-size 196 --fit.precision bfloat16
}
train() {
  pair python -m training.train --encoder.weights pair.weights.h5 --fit.validation-images 100 \
      --attention.penalty-weight 0 --decoder.embedding-dim 256 --decoder.annotation-dropout 0.2 \
      --decoder.embedding-dropout 0.4 --decoder.output-dropout 0.4 "$@"
}
pair python -m training.standardize --recipe flickr8k_vgg19_soft --compact --images 300 \
    --out pair.weights.h5 --encoder.weights dinov2_small.weights.h5+mobilenet_v2_no_top.weights.h5
for seed in 0 1 2; do
  pair python -m training.locate --recipe flickr8k_vgg19_soft --encoder.weights pair.weights.h5 \
      --seed $seed --out locator$seed.npz
  train --recipe flickr8k_vgg19_soft --run-dir SOFT_$seed --seed $seed --fit.epochs 5 \
      --attention.supervision-weight 0.5 --attention.teacher locator$seed.npz \
      --decoder.attention-previous-word True
  train --recipe flickr8k_vgg19_hard --run-dir HARD_$seed --seed $seed --fit.epochs 1 \
      --attention.supervision-weight 0.5 --attention.teacher locator$seed.npz \
      --decoder.attention-previous-word True --init-from SOFT_$seed \
      --optimizer.learning-rate 2e-4 --attention.preset vimco --attention.expectation-probability 0.8
  train --recipe flickr8k_vgg19_none --run-dir NONE_$seed --seed $seed --fit.epochs 5
  python -m training.evaluate --run-dir SOFT_$seed --data-dir "$DATA" --boxes "$BOXES"
  python -m training.evaluate --run-dir HARD_$seed --data-dir "$DATA" --boxes "$BOXES"
done
python -m training.compare NONE_0 NONE_1 NONE_2 SOFT_0 SOFT_1 SOFT_2 HARD_0 HARD_1 HARD_2 \
    --seeds 3 --data-dir "$DATA"
python -m training.compare SOFT_0 SOFT_1 SOFT_2 HARD_0 HARD_1 HARD_2 --seeds 3 --data-dir "$DATA"
