#!/bin/sh
# Hard attention for one epoch from the soft captioner taught by a word locator (word_locator.sh, whose
# folder this needs), by preset and share of captions that take the expectation; seed 0. With VIMCO, a
# uniform map costs 0.057 nats more [0.051, 0.066] than with the paper's estimator for the same share.
set -eu
hard() {
  python -m training.train --recipe flickr8k_vgg19_hard --data-dir "$DATA" --init-from SOFT_0 \
      --encoder.name keras_hub:dinov2_small+mobilenet_v2 \
      --encoder.layer stage10+block_16_project_BN --encoder.image-size 196 \
      --encoder.weights pair.weights.h5 --fit.precision bfloat16 --fit.validation-images 100 \
      --attention.penalty-weight 0 --decoder.embedding-dim 256 --decoder.annotation-dropout 0.2 \
      --decoder.embedding-dropout 0.4 --decoder.output-dropout 0.4 --fit.epochs 1 \
      --attention.supervision-weight 0.5 --attention.teacher locator0.npz \
      --decoder.attention-previous-word True --optimizer.learning-rate 2e-4 "$@"
}
hard --run-dir PAPER_8 --attention.preset paper --attention.expectation-probability 0.8
for share in 0 0.5 0.8; do
  hard --run-dir VIMCO_$share --attention.preset vimco --attention.expectation-probability $share
done
