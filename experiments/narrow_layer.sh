#!/bin/sh
# A layer of 512 with a ReLU before the decoder. WIDE and BEFORE: ResNet50 beside MobileNetV2, without
# and with it (both.weights.h5 of resnet50_mobilenet_v2.sh). MOBILE_*: MobileNetV2 alone; layer, dropout
# and penalty were not separated. SOFT_BOXED, NONE: DINOv2 beside MobileNetV2, with the layer
# (pair.weights.h5 of word_locator.sh at commit 8563600a, as are runs *_TAUGHT). WIDE stopped
# after eight of nine epochs and kept its fourth; BEFORE kept its sixth, the last. The maps of BEFORE
# are alike with seed 1: pointing game 49.7 [48.3, 51.1], small things 24.7, attention correctness 42.1.
set -eu
both() {
  python -m training.train --data-dir "$DATA" --encoder.name resnet50+mobilenet_v2 \
      --encoder.layer conv5_block3_out+out_relu --encoder.image-size 224 \
      --encoder.weights both.weights.h5 --fit.precision bfloat16 --fit.validation-images 200 \
      --attention.penalty-weight 0 --decoder.annotation-dropout 0.5 "$@"
}
evaluate() { python -m training.evaluate --data-dir "$DATA" --boxes "$BOXES" --run-dir "$@"; }
both --recipe flickr8k_vgg19_soft --run-dir WIDE --fit.epochs 9
both --recipe flickr8k_soft --run-dir BEFORE --fit.epochs 6 --decoder.bottleneck-dim 512
evaluate WIDE
evaluate BEFORE
python -m training.compare WIDE BEFORE --data-dir "$DATA"

# Other settings with the layer ("BEST and ..."), and SOUP, a mean of longer runs.
for seed in 1 2 3; do
  both --recipe flickr8k_soft --run-dir LONGER_$seed --init-from BEFORE --seed $seed \
      --decoder.bottleneck-dim 512 --fit.epochs 3 --fit.monitor nll \
      --optimizer.learning-rate 4e-4 --optimizer.warmup-epochs 0.1
done
python -m training.average BEFORE LONGER_1 LONGER_2 LONGER_3 --run-dir SOUP
python -m training.evaluate --run-dir SOUP --data-dir "$DATA"

# MobileNetV2 alone; then hard attention from it for one epoch: pointing game 46.1 (+2.0 [1.2, 2.8]),
# small things 23.4 (+1.1 [0.1, 2.3]), CIDEr 50.2 (-1.3 [-2.6, 0.0]).
mobile() {
  python -m training.train --data-dir "$DATA" --encoder.name mobilenet_v2 \
      --fit.precision bfloat16 --fit.validation-images 200 "$@"
}
mobile --recipe flickr8k_vgg19_soft --run-dir MOBILE_WIDE --fit.epochs 5
mobile --recipe flickr8k_soft --run-dir MOBILE_NARROW --fit.epochs 5
mobile --recipe flickr8k_hard --run-dir MOBILE_HARD --fit.epochs 1 --init-from MOBILE_NARROW
for run in MOBILE_WIDE MOBILE_NARROW MOBILE_HARD; do evaluate $run; done
python -m training.compare MOBILE_WIDE MOBILE_NARROW --data-dir "$DATA"
python -m training.compare MOBILE_NARROW MOBILE_HARD --data-dir "$DATA"

# DINOv2 beside MobileNetV2.
layered() {
  python -m training.train --data-dir "$DATA" --encoder.name keras_hub:dinov2_small+mobilenet_v2 \
      --encoder.layer stage10+block_16_project_BN --encoder.image-size 196 \
      --encoder.weights pair.weights.h5 --fit.precision bfloat16 --fit.validation-images 200 \
      --attention.penalty-weight 0 --decoder.annotation-dropout 0.5 --decoder.bottleneck-dim 512 "$@"
}
layered --recipe flickr8k_soft --run-dir SOFT_BOXED --fit.epochs 7 \
    --attention.supervision-weight 0.5 --attention.teacher "$TRAIN_BOXES"
layered --recipe flickr8k_none --run-dir NONE --fit.epochs 7
evaluate SOFT_BOXED
python -m training.compare NONE SOFT_BOXED --data-dir "$DATA"
