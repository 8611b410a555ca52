#!/bin/sh
# paper_scores.sh with MobileNetV2: soft attention at 7 x 7, hard attention at 9 x 9.
set -eu
for seed in 0 1 2; do
  short() {
    python -m training.train --data-dir "$DATA" --encoder.name mobilenet_v2 \
        --fit.precision bfloat16 --seed $seed "$@"
  }
  rewarded() {
    short --reward.metric cider --reward.bleu-weight 0.5 --reward.max-length 16 \
        --fit.batch-size 32 --fit.epochs 4 --optimizer.name adam --optimizer.learning-rate 1e-4 \
        --optimizer.warmup-epochs 0.1 "$@"
  }
  short --recipe flickr8k_vgg19_soft --run-dir SHORT_$seed --fit.epochs 5
  rewarded --recipe flickr8k_vgg19_soft --run-dir REWARDED_$seed --init-from SHORT_$seed
  python -m training.average SHORT_$seed REWARDED_$seed --shares 0.55 0.45 --run-dir MEAN_$seed
  python -m training.evaluate --run-dir MEAN_$seed --data-dir "$DATA"

  short --recipe flickr8k_vgg19_soft --run-dir SHORT_288_$seed --fit.epochs 5 \
      --encoder.image-size 288
  short --recipe flickr8k_vgg19_hard --run-dir HARD_$seed --init-from SHORT_288_$seed \
      --encoder.image-size 288 --fit.epochs 1 --decoder.annotation-dropout 0.3 \
      --decoder.embedding-dropout 0.5 --optimizer.learning-rate 2e-4 --optimizer.warmup-epochs 0.1
  rewarded --recipe flickr8k_vgg19_hard --run-dir HARD_REWARDED_$seed --init-from HARD_$seed \
      --encoder.image-size 288
  python -m training.average HARD_$seed HARD_REWARDED_$seed --run-dir HARD_MEAN_$seed
  python -m training.evaluate --run-dir HARD_MEAN_$seed --data-dir "$DATA"
done
