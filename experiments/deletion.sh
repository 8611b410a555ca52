#!/bin/sh
# Which maps point, and which matter: the same settings without and with boxes, over the encoder of
# the captioners that ship, and these. Three epochs from new weights, no mirrored images; the hard
# one is an epoch from the soft one. Falls are means over the content words of own captions: of all
# dev images for flickr8k_soft, of the first 400 for the others. Builds on the folder of shipped.sh.
set -eu
train() {
  python -m training.train --data-dir "$DATA" --data.mirror False \
      --encoder.name resnet50+mobilenet_v2 --encoder.layer conv5_block3_out+out_relu \
      --encoder.weights ../shipped/compact.weights.h5 --encoder.image-size 288 --fit.precision bfloat16 \
      --fit.validation-images 100 --fit.batch-by image "$@"
}
train --recipe flickr8k_soft --run-dir UNTAUGHT_SOFT --fit.epochs 3
train --recipe flickr8k_soft --run-dir TAUGHT_SOFT --fit.epochs 3 \
    --attention.supervision-weight 0.5 --attention.teacher "$TRAIN_BOXES"
train --recipe flickr8k_hard --run-dir UNTAUGHT_HARD --fit.epochs 1 --init-from UNTAUGHT_SOFT
for run in UNTAUGHT_SOFT TAUGHT_SOFT UNTAUGHT_HARD flickr8k_soft flickr8k_hard; do
  python -m training.evaluate --run-dir $run --data-dir "$DATA" --boxes "$BOXES" --deletion \
      --out evaluation/$run
done
