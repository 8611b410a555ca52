#!/bin/sh
# Other settings over VGG19, seed 0: no penalty and more dropout (DROPPED), the layer (NARROW), six
# settings at once (FIRST), weights as downloaded (RAW), and estimators of hard attention. Run in the
# folder of vgg19.sh. Paired, from SOFT_0: PAPER +4.1 [3.1, 5.0] in the pointing game, CIDEr -5.6 [-7.9,
# -3.3]; HARD_0 +2.5 [1.7, 3.3] and -1.9 [-3.7, 0.1]; VIMCO +0.1 [-0.6, 0.8] and -0.9 [-2.6, 0.9];
# DROPPED -2.0 [-2.9, -1.0]. NARROW from DROPPED: attention correctness +6.5 [6.1, 6.8], pointing game
# +2.1 [0.8, 3.5], CIDEr -1.5 [-4.1, 1.0]. SOFT_0 from RAW: BLEU-4 +1.4 [0.3, 2.4].
set -eu
train() {
  python -m training.train --data-dir "$DATA" --fit.precision bfloat16 "$@"
}
dropped() {
  train --recipe flickr8k_vgg19_soft --encoder.weights vgg.weights.h5 --fit.validation-images 200 \
      --attention.penalty-weight 0 --decoder.annotation-dropout 0.5 --fit.epochs 6 "$@"
}
hard() {
  train --recipe flickr8k_vgg19_hard --encoder.weights vgg.weights.h5 --fit.validation-images 200 \
      --decoder.annotation-dropout 0.3 --decoder.embedding-dropout 0.5 --init-from SOFT_0 \
      --fit.epochs 1 --optimizer.learning-rate 2e-4 --optimizer.warmup-epochs 0.1 "$@"
}
dropped --run-dir DROPPED
dropped --run-dir NARROW --decoder.bottleneck-dim 512
train --recipe flickr8k_vgg19_soft --encoder.weights vgg.weights.h5 --fit.validation-images 100 \
    --run-dir FIRST --data.mirror False --attention.penalty-weight 0 --decoder.embedding-dim 256 \
    --decoder.annotation-dropout 0.2 --decoder.embedding-dropout 0.4 --decoder.output-dropout 0.4 \
    --fit.epochs 5
hard --run-dir PAPER
hard --run-dir VIMCO --attention.preset vimco --attention.expectation-probability 0.8
train --recipe flickr8k_vgg19_soft --encoder.weights vgg19_no_top.weights.h5 \
    --fit.validation-images 200 --run-dir RAW --fit.epochs 6
for run in DROPPED FIRST NARROW PAPER VIMCO; do
  python -m training.evaluate --run-dir $run --data-dir "$DATA" --boxes "$BOXES"
done
python -m training.compare SOFT_0 DROPPED PAPER HARD_0 VIMCO --data-dir "$DATA"
python -m training.compare DROPPED NARROW --data-dir "$DATA"
python -m training.compare RAW SOFT_0 --data-dir "$DATA"
