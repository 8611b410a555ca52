#!/bin/sh
# Learning on from the captioner that ships, against new weights. OWN_60 and OWN_300 hold that many photographs of
# Flickr8k's dev split with five captions each, a tenth of them as dev, and 600 others of it as test. Then from a
# smaller captioner: SOURCE holds 4,000 training photographs and all of dev as test, OTHER_60, OTHER_300 and
# OTHER_1500 other ones, a tenth of them as dev, and all of dev as test.
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
python -m training.train --recipe folder_soft --data-dir SOURCE --run-dir source --fit.epochs 8
python -m training.evaluate --run-dir source --split test
for count in 60 300 1500; do
  for seed in 0 1 2; do
    python -m training.train --recipe folder_soft --data-dir OTHER_$count --run-dir other_new_${count}_$seed \
        --seed $seed
    python -m training.train --recipe folder_soft --data-dir OTHER_$count --run-dir other_on_${count}_$seed \
        --seed $seed --init-from source --keep-words True --optimizer.learning-rate 2e-4 --fit.epochs 6
    for kind in new on; do
      python -m training.evaluate --run-dir other_${kind}_${count}_$seed --split test
    done
  done
  python -m training.compare other_new_${count}_0 other_new_${count}_1 other_new_${count}_2 \
      other_on_${count}_0 other_on_${count}_1 other_on_${count}_2 --seeds 3 --split test
done
