#!/bin/sh
# The recipe flickr8k_soft as typed: ResNet50, soft attention, no teacher. Seed 0, float32.
# It takes 44 minutes of processor time, from empty caches to the report.
set -eu
python -m training.train --recipe flickr8k_soft --data-dir "$DATA"

# --- controls.csv ---
# What the maps of every table are compared with, over the 12,992 phrases of Flickr8k's dev captions
# that have boxes in Flickr30k Entities. An evaluation with boxes reports them; any run will do.
(
  python -m training.evaluate --run-dir runs/flickr8k_soft --data-dir "$DATA" --boxes "$BOXES"
)

# --- mobilenet_v2.csv ---
# MobileNetV2 with the settings of VGG19's recipes: soft, hard and no attention.
# No difference from the captioner without attention is clear of zero.
(
  for kind in soft hard none; do
    python -m training.train --recipe flickr8k_vgg19_$kind --data-dir "$DATA" \
        --encoder.name mobilenet_v2 --run-dir MOBILENET_$kind
  done
  python -m training.compare MOBILENET_none MOBILENET_hard MOBILENET_soft --data-dir "$DATA"
)

# --- resnet50.csv ---
# ResNet50 (7 x 7 x 2048) with a narrow layer, no teacher: the settings of the recipes flickr8k_soft,
# _hard and _none, with precision, weights and fewer validation images. Three seeds. With two trainings
# at a time on two cores, soft, none and hard attention took 14, 10 and 3 minutes, after 21 minutes for
# the annotations (2.5 GB with dev).
(
  train() {
    python -m training.train --data-dir "$DATA" --fit.precision bfloat16 \
        --fit.validation-images 200 --attention.penalty-weight 0 --decoder.bottleneck-dim 512 \
        --encoder.name resnet50 --encoder.weights resnet50_no_top.weights.h5 \
        --decoder.annotation-dropout 0.5 "$@"
  }
  for seed in 0 1 2; do
    train --recipe flickr8k_soft --run-dir SOFT_$seed --seed $seed --fit.epochs 5
    train --recipe flickr8k_none --run-dir NONE_$seed --seed $seed --fit.epochs 5
    train --recipe flickr8k_hard --run-dir HARD_$seed --seed $seed --init-from SOFT_$seed \
        --fit.epochs 1 --attention.expectation-probability 0.8 --optimizer.learning-rate 2e-4 \
        --optimizer.warmup-epochs 0.1
    python -m training.evaluate --run-dir SOFT_$seed --data-dir "$DATA" --boxes "$BOXES"
    python -m training.evaluate --run-dir HARD_$seed --data-dir "$DATA" --boxes "$BOXES"
  done
  python -m training.compare NONE_0 NONE_1 NONE_2 SOFT_0 SOFT_1 SOFT_2 HARD_0 HARD_1 HARD_2 \
      --seeds 3 --data-dir "$DATA"
  python -m training.compare SOFT_0 SOFT_1 SOFT_2 HARD_0 HARD_1 HARD_2 --seeds 3 --data-dir "$DATA"
)
