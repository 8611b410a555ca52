#!/bin/sh
# Learning on from the captioner that ships, against new weights. OWN_60 and OWN_300 hold that many photographs of
# Flickr8k's dev split with five captions each, a tenth of them as dev, and 600 others of it as test.
set -eu
for count in 60 300; do
  for seed in 0 1 2; do
    for recipe in folder_soft folder_from_flickr8k; do
      run=${recipe}_${count}_$seed
      python -m training.train --recipe $recipe --data-dir OWN_$count --run-dir $run --seed $seed
      python -m training.evaluate --run-dir $run --split test
    done
  done
  python -m training.compare folder_soft_${count}_0 folder_soft_${count}_1 folder_soft_${count}_2 \
      folder_from_flickr8k_${count}_0 folder_from_flickr8k_${count}_1 folder_from_flickr8k_${count}_2 \
      --seeds 3 --split test
done
