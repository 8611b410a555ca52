#!/bin/sh
# Rewards and shares over ResNet50 beside MobileNetV2, without the narrow layer (WIDE of
# narrow_layer.sh) and with it (BEFORE and REWARDED_0 to 2 of resnet50_mobilenet_v2.sh, whose folder
# this needs). Other rows change --shares and --length-power. At a length power of 1, the mean with
# the layer minus the one without it: BLEU-4 +0.57 [-0.57, 1.64], METEOR +0.26 [-0.14, 0.67],
# CIDEr +0.62 [-1.59, 3.05].
set -eu
train() {
  python -m training.train --recipe flickr8k_vgg19_soft --data-dir "$DATA" \
      --encoder.name resnet50+mobilenet_v2 --encoder.layer conv5_block3_out+out_relu \
      --encoder.image-size 224 --encoder.weights both.weights.h5 --fit.precision bfloat16 \
      --fit.validation-images 200 --attention.penalty-weight 0 "$@"
}
rewarded() {
  train --reward.metric cider --reward.max-length 16 --fit.batch-size 32 --fit.epochs 3 \
      --optimizer.name adam --optimizer.learning-rate 1e-4 --optimizer.warmup-epochs 0.1 "$@"
}
small() {  # less dropout, narrower embeddings
  "$@" --decoder.embedding-dim 256 --decoder.annotation-dropout 0.2 \
      --decoder.embedding-dropout 0.4 --decoder.output-dropout 0.4
}
small train --run-dir SMALL --fit.epochs 6
small rewarded --run-dir SMALL_REWARDED --init-from SMALL
python -m training.average SMALL SMALL_REWARDED --shares 0.5 0.5 --run-dir SMALL_MEAN
for seed in 0 1 2; do
  rewarded --decoder.annotation-dropout 0.5 --init-from WIDE --run-dir WIDE_REWARDED_$seed --seed $seed
done
python -m training.average WIDE WIDE_REWARDED_0 WIDE_REWARDED_1 WIDE_REWARDED_2 \
    --shares 0.5 0.2 0.15 0.15 --run-dir WIDE_MEAN
python -m training.average BEFORE REWARDED_0 --shares 0.75 0.25 --run-dir NARROW_MEAN
