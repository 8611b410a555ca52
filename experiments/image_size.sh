#!/bin/sh
# Larger images over MobileNetV2: 9 x 9 maps help a little with every seed, 14 x 14 do not.
set -eu
for size in 224 288 448; do
  for seed in 0 1 2; do  # 448 pixels: seed 0 only
    python -m training.train --recipe flickr8k_vgg19_soft --data-dir "$DATA" \
        --encoder.name mobilenet_v2 --encoder.image-size $size --fit.precision bfloat16 \
        --fit.epochs 5 --seed $seed --run-dir MAPS_${size}_$seed
  done
done
