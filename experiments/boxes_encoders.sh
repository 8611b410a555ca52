#!/bin/sh
# Boxes as attention's teacher over three encoders: DINOv2's last block, its tenth block, and that
# beside MobileNetV2 (boxes.sh). From row to row more than one thing changes. The channels of the first
# were standardised by no command of this repository. Boxes do not make MobileNetV2's maps true: two
# epochs of supervision give a pointing game of 56.1 (centre 53.8), of small things 34.8 (30.3), and a
# uniform map costs 0.01 nats; BLEU-4 20.5 and CIDEr 50.3 (21.6 and 52.1 before).
set -eu
train() {
  python -m training.train --data-dir "$DATA" --encoder.name keras_hub:dinov2_small \
      --encoder.weights dinov2.weights.h5 --encoder.image-size 196 --fit.precision bfloat16 \
      --fit.validation-images 200 --attention.penalty-weight 0 "$@"
}
boxed() {
  train --recipe flickr8k_vgg19_soft --attention.supervision-weight 0.5 --attention.teacher "$TRAIN_BOXES" "$@"
}
boxed --run-dir LAST --fit.epochs 8 --decoder.annotation-dropout 0
train --recipe flickr8k_vgg19_none --run-dir LAST_NONE --fit.epochs 8 --decoder.annotation-dropout 0
boxed --run-dir TENTH --encoder.layer stage10 --fit.epochs 7 --decoder.embedding-dim 256 \
    --decoder.annotation-dropout 0.1 --decoder.embedding-dropout 0.3 --decoder.output-dropout 0.3
