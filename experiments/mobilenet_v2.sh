#!/bin/sh
# MobileNetV2 with the settings of VGG19's recipes: soft, hard and no attention.
# No difference from the captioner without attention is clear of zero.
set -eu
for kind in soft hard none; do
  python -m training.train --recipe flickr8k_vgg19_$kind --data-dir "$DATA" \
      --encoder.name mobilenet_v2 --run-dir MOBILENET_$kind
done
python -m training.compare MOBILENET_none MOBILENET_hard MOBILENET_soft --data-dir "$DATA"
