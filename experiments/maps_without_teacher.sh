#!/bin/sh
# Maps without a teacher after four epochs, over MobileNetV2 and over DINOv2's last block. The two runs
# differ in the penalty and in dropout, too; the changes were not separated.
set -eu
train() {
  python -m training.train --recipe flickr8k_vgg19_soft --data-dir "$DATA" \
      --fit.precision bfloat16 --fit.epochs 4 --fit.validation-images 100 "$@"
}
train --run-dir MOBILENET --encoder.name mobilenet_v2
train --run-dir DINOV2 --encoder.name keras_hub:dinov2_small \
    --encoder.weights dinov2_small.weights.h5 --encoder.image-size 196 \
    --attention.penalty-weight 0 --decoder.annotation-dropout 0
python -m training.evaluate --run-dir MOBILENET --data-dir "$DATA" --boxes "$BOXES"
python -m training.evaluate --run-dir DINOV2 --data-dir "$DATA" --boxes "$BOXES"
