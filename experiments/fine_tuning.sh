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

# --- own_photographs.csv ---
# Which epoch of a small folder to keep. Folders of 40, 120 and 300 training photographs of Flickr8k (80 % train, 10 %
# dev), with five captions each or with one; MobileNetV2. Every epoch captioned 500 dev photographs of Flickr8k,
# greedily, by a script that is not kept: the CIDEr of the epoch that a score keeps, in percent of the best one's.
(
  for folder in 40_5 40_1 120_5 120_1 300_5 300_1; do
    for seed in 0 1 2; do
      python -m training.train --recipe folder_soft --data-dir OWN_$folder --run-dir ${folder}_$seed \
          --seed $seed --fit.monitor last
    done
  done
)
