#!/bin/sh
# Drawn scenes: soft, no and hard attention, and no attention for as long as hard; soft attention with
# three other seeds. In an earlier version, a third epoch gave soft attention a BLEU-4 of 96.2, 83 % of
# the relations right, and a pointing game of 87.
set -eu
python -m training.train --recipe scenes_soft
python -m training.train --recipe scenes_hard
python -m training.train --recipe scenes_none
python -m training.train --recipe scenes_none --fit.epochs 8 --run-dir runs/scenes_none_8
python -m training.compare runs/scenes_none runs/scenes_soft
python -m training.compare runs/scenes_none_8 runs/scenes_hard
for seed in 1 2 3; do
  python -m training.train --recipe scenes_soft --seed $seed --run-dir runs/seed_$seed
done
