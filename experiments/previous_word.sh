#!/bin/sh
# The soft captioner taught by a word locator (word_locator.sh, whose files this needs), with and
# without reading the previous word; seed 0, on another processor. Supervised by boxes, the word changes
# little: pointing game 70.6, small things 58.4, BLEU-4 21.1, METEOR 19.7, CIDEr 49.3 (boxes.sh: 70.1,
# 58.1, 21.6, 19.9, 50.5).
set -eu
for word in False True; do
  python -m training.train --recipe flickr8k_vgg19_soft --run-dir WORD_$word --data-dir "$DATA" \
      --encoder.name keras_hub:dinov2_small+mobilenet_v2 \
      --encoder.layer stage10+block_16_project_BN --encoder.image-size 196 \
      --encoder.weights pair.weights.h5 --fit.precision bfloat16 --fit.validation-images 100 \
      --attention.penalty-weight 0 --decoder.embedding-dim 256 --decoder.annotation-dropout 0.2 \
      --decoder.embedding-dropout 0.4 --decoder.output-dropout 0.4 --fit.epochs 5 \
      --attention.supervision-weight 0.5 --attention.teacher locator0.npz \
      --decoder.attention-previous-word $word
  python -m training.evaluate --run-dir WORD_$word --data-dir "$DATA" --boxes "$BOXES"
done
