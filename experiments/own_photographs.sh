#!/bin/sh
# Which epoch of a small folder to keep. Folders of 40, 120 and 300 training photographs of Flickr8k (80 % train, 10 %
# dev), with five captions each or with one; MobileNetV2. Every epoch captioned 500 dev photographs of Flickr8k,
# greedily, by a script that is not kept: the CIDEr of the epoch that a score keeps, in percent of the best one's.
set -eu
for folder in 40_5 40_1 120_5 120_1 300_5 300_1; do
  for seed in 0 1 2; do
    python -m training.train --recipe folder_soft --data-dir OWN_$folder --run-dir ${folder}_$seed \
        --seed $seed --fit.monitor last
  done
done
