#!/bin/sh
# One setting of flickr8k_vgg19_soft over MobileNetV2 changed at a time. No setting changes METEOR by
# much more than the seed does.
set -eu
train() {
  python -m training.train --recipe flickr8k_vgg19_soft --data-dir "$DATA" \
      --encoder.name mobilenet_v2 --fit.precision bfloat16 --fit.epochs 5 "$@"
}
train --run-dir SHORT
train --run-dir SEED_1 --seed 1
train --run-dir SEED_2 --seed 2
train --run-dir UNSMOOTHED --fit.label-smoothing 0.0
train --run-dir KEPT --decoder.annotation-dropout 0.0
train --run-dir LESS_DROPOUT --decoder.annotation-dropout 0.1 --decoder.embedding-dropout 0.3 \
    --decoder.output-dropout 0.3
train --run-dir WIDE_STATE --decoder.hidden-dim 1024
train --run-dir LARGE --encoder.image-size 288
