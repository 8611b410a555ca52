#!/bin/sh
# The paper's encoder, VGG19 (block5_conv4, 14 x 14 x 512), channels standardised, no teacher: soft,
# hard and no attention, three seeds. Hard attention starts from soft, for one epoch, with the expected
# context for 80 % of the captions. A seed takes 16 minutes on two cores, after 19 minutes for the
# annotations (plain and mirrored, 2.6 GB).
set -eu
train() {
  python -m training.train --data-dir "$DATA" --encoder.weights vgg.weights.h5 \
      --fit.precision bfloat16 --fit.validation-images 200 "$@"
}
python -m training.standardize --recipe flickr8k_vgg19_soft --data-dir "$DATA" --images 300 \
    --fit.precision bfloat16 --out vgg.weights.h5 --encoder.weights vgg19_no_top.weights.h5
for seed in 0 1 2; do
  train --recipe flickr8k_vgg19_soft --run-dir SOFT_$seed --fit.epochs 6 --seed $seed
  train --recipe flickr8k_vgg19_none --run-dir NONE_$seed --fit.epochs 6 --seed $seed
  train --recipe flickr8k_vgg19_hard --run-dir HARD_$seed --init-from SOFT_$seed --seed $seed \
      --fit.epochs 1 --attention.expectation-probability 0.8 --optimizer.learning-rate 2e-4 \
      --optimizer.warmup-epochs 0.1 --decoder.annotation-dropout 0.3 --decoder.embedding-dropout 0.5
  python -m training.evaluate --run-dir SOFT_$seed --data-dir "$DATA" --boxes "$BOXES"
  python -m training.evaluate --run-dir HARD_$seed --data-dir "$DATA" --boxes "$BOXES"
done
python -m training.compare NONE_0 NONE_1 NONE_2 SOFT_0 SOFT_1 SOFT_2 HARD_0 HARD_1 HARD_2 \
    --seeds 3 --data-dir "$DATA"
python -m training.compare SOFT_0 SOFT_1 SOFT_2 HARD_0 HARD_1 HARD_2 --seeds 3 --data-dir "$DATA"

# --- paper_scores.csv ---
# VGG19, rewarded for BLEU and CIDEr-D together and averaged with the run before the reward, for the
# scores that the paper reports. Run in the folder of vgg19.sh. A rewarded run takes 5 to 8 minutes.
# BLEU rises, METEOR falls by 0.4 on average; captions vary less: 662 of 1,000 captions of soft
# attention are distinct (seed 0), before the reward 844.
(
  rewarded() {
    python -m training.train --data-dir "$DATA" --encoder.weights vgg.weights.h5 \
        --fit.precision bfloat16 --fit.validation-images 200 --reward.metric cider \
        --reward.bleu-weight 0.5 --reward.max-length 16 --fit.batch-size 32 --fit.epochs 3 \
        --optimizer.name adam --optimizer.learning-rate 1e-4 --optimizer.warmup-epochs 0.1 "$@"
  }
  for seed in 0 1 2; do
    rewarded --recipe flickr8k_vgg19_soft --seed $seed --init-from SOFT_$seed \
        --run-dir SOFT_REWARDED_$seed
    rewarded --recipe flickr8k_vgg19_hard --seed $seed --init-from HARD_$seed \
        --run-dir HARD_REWARDED_$seed --decoder.annotation-dropout 0.3 \
        --decoder.embedding-dropout 0.5 --attention.expectation-probability 0.8
    python -m training.average SOFT_$seed SOFT_REWARDED_$seed --shares 0.45 0.55 \
        --run-dir SOFT_MEAN_$seed
    python -m training.average HARD_$seed HARD_REWARDED_$seed --shares 0.4 0.6 \
        --run-dir HARD_MEAN_$seed
    python -m training.evaluate --run-dir SOFT_MEAN_$seed --data-dir "$DATA"
    python -m training.evaluate --run-dir HARD_MEAN_$seed --data-dir "$DATA"
  done
  # Rows with another search:
  python -m training.evaluate --run-dir HARD_MEAN_0 --data-dir "$DATA" --length-power 1.0 --beam 50 \
      --consensus 6 --out HARD_MEAN_AGREED_0
)

# --- distilled_vgg19.csv ---
# VGG19 distilled from FIRST_SOFT and FIRST_NONE of shipped.sh; soft attention, then hard attention by
# VIMCO, rewarded and averaged; three seeds, on one GPU. Run in the folder of vgg19.sh, with students.npz
# of shipped.sh. Maps of TAUGHT_VIMCO find 54.3 % (0.5) of the things named, 34.8 % of the small ones;
# those of TAUGHT_BOTH 52.4 % and 33.0 %. Hard attention by the paper's estimator (TAUGHT_HARD, seed 0):
# BLEU-4 21.4, METEOR 19.9, CIDEr 50.5, maps 58.2 % and 40.4 %.
(
  train() {
    python -m training.train --data-dir "$DATA" --encoder.weights vgg.weights.h5 \
        --fit.precision bfloat16 --fit.validation-images 200 "$@"
  }
  hard() {
    train --recipe flickr8k_vgg19_hard --decoder.annotation-dropout 0.3 \
        --decoder.embedding-dropout 0.5 --attention.expectation-probability 0.8 "$@"
  }
  distilled() { "$@" --fit.distillation-weight 0.7 --fit.predictions students.npz; }
  rewarded() {
    hard --data.mirror False --attention.preset vimco --reward.metric cider --reward.bleu-weight 0.5 \
        --reward.max-length 16 --fit.batch-size 32 --fit.epochs 3 --optimizer.name adam \
        --optimizer.learning-rate 1e-4 --optimizer.warmup-epochs 0.1 "$@"
  }
  for seed in 0 1 2; do
    distilled train --recipe flickr8k_vgg19_soft --run-dir TAUGHT_$seed --fit.epochs 8 --seed $seed
    distilled hard --run-dir TAUGHT_VIMCO_$seed --init-from TAUGHT_$seed --seed $seed \
        --data.mirror False --attention.preset vimco --fit.epochs 1 --optimizer.learning-rate 2e-4 \
        --optimizer.warmup-epochs 0.1
    rewarded --run-dir TAUGHT_REWARDED_$seed --init-from TAUGHT_VIMCO_$seed --seed $seed
    python -m training.average TAUGHT_VIMCO_$seed TAUGHT_REWARDED_$seed --shares 0.6 0.4 \
        --run-dir TAUGHT_MEAN_$seed
    python -m training.average TAUGHT_$seed TAUGHT_REWARDED_$seed --shares 0.6 0.4 \
        --run-dir TAUGHT_BOTH_$seed
    python -m training.average TAUGHT_$seed TAUGHT_REWARDED_$seed --shares 0.58 0.42 \
        --run-dir TAUGHT_WIDE_$seed
    for run in TAUGHT TAUGHT_VIMCO TAUGHT_BOTH; do
      python -m training.evaluate --run-dir ${run}_$seed --data-dir "$DATA" --boxes "$BOXES"
    done
    python -m training.evaluate --run-dir TAUGHT_MEAN_$seed --data-dir "$DATA" --length-power 1.3 \
        --boxes "$BOXES"
    python -m training.evaluate --run-dir TAUGHT_WIDE_$seed --data-dir "$DATA" --beam 200 --consensus 6
  done
  distilled hard --run-dir TAUGHT_HARD --init-from TAUGHT_0 --fit.epochs 1 \
      --optimizer.learning-rate 2e-4 --optimizer.warmup-epochs 0.1
  # METEOR in the reward.
  rewarded --run-dir TAUGHT_METEOR_0 --init-from TAUGHT_VIMCO_0 --reward.meteor-weight 2
  python -m training.evaluate --run-dir TAUGHT_METEOR_0 --data-dir "$DATA"
)
