#!/bin/sh
# Estimators of hard attention on drawn scenes: three epochs, mean and standard deviation of three
# seeds; the noise of their gradients from the weights of `paper`.
set -eu
for seed in 0 1 2; do
  for name in soft paper reinforce rloo vimco; do
    case $name in
      soft) set -- --attention.kind soft ;;
      reinforce)
        set -- --attention.reward-weight 1 --attention.entropy-weight 0 \
          --attention.expectation-probability 0 ;;
      *) set -- --attention.preset "$name" ;;
    esac
    python -m training.train --recipe scenes_hard --fit.epochs 3 --fit.figures 0 --seed "$seed" \
      --run-dir "$name-seed$seed" "$@"
    python -m training.evaluate --run-dir "$name-seed$seed" --split dev --figures 0
  done
  PYTHONPATH="$(dirname "$0")/.." python -m benchmarks.estimators --run-dir "paper-seed$seed"
done
