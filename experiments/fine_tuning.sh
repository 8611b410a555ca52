#!/bin/sh
# The encoder fine-tuned from block_14_expand on for three epochs: no gain. Run in the folder of
# mobilenet_v2.sh.
set -eu
python -m training.train --recipe flickr8k_vgg19_soft --data-dir "$DATA" \
    --encoder.name mobilenet_v2 --run-dir TUNED --init-from MOBILENET_soft \
    --encoder.trainable True --encoder.trainable-from block_14_expand \
    --optimizer.learning-rate 1e-4 --optimizer.encoder-learning-rate 2e-5 --fit.epochs 3 \
    --data.mirror True --data.random-crop 0.125 --fit.batch-by image
python -m training.compare MOBILENET_soft TUNED --data-dir "$DATA"
