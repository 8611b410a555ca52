#!/bin/sh
# ResNet50 beside MobileNetV2 with a narrow layer: the best captions without other captioners as
# teachers (BEFORE, MEAN), and the same supervised by boxes (BOXED). BEFORE takes 14 minutes on two
# cores, eight of them for the annotations, a rewarded run four. Epochs, shares, length power, beam
# and the sharpness of consensus were chosen on dev.
set -eu
train() {
  python -m training.train --recipe flickr8k_soft --data-dir "$DATA" \
      --encoder.name resnet50+mobilenet_v2 --encoder.layer conv5_block3_out+out_relu \
      --encoder.image-size 224 --encoder.weights both.weights.h5 --fit.precision bfloat16 \
      --fit.validation-images 200 --attention.penalty-weight 0 \
      --decoder.annotation-dropout 0.5 --decoder.bottleneck-dim 512 "$@"
}
rewarded() {
  train --reward.metric cider --reward.max-length 16 --fit.batch-size 32 --fit.epochs 3 \
      --optimizer.name adam --optimizer.learning-rate 1e-4 --optimizer.warmup-epochs 0.1 "$@"
}
evaluate() { python -m training.evaluate --data-dir "$DATA" "$@"; }
compare() { python -m training.compare --data-dir "$DATA" "$@"; }
python -m training.standardize --recipe flickr8k_soft --data-dir "$DATA" --images 500 \
    --encoder.name resnet50+mobilenet_v2 --encoder.layer conv5_block3_out+out_relu \
    --encoder.image-size 224 --out both.weights.h5 \
    --encoder.weights resnet50_no_top.weights.h5+mobilenet_v2_no_top.weights.h5
train --run-dir BEFORE --fit.epochs 6
for seed in 0 1 2; do
  rewarded --run-dir REWARDED_$seed --init-from BEFORE --seed $seed
done
python -m training.average BEFORE REWARDED_0 REWARDED_1 REWARDED_2 --shares 0.7 0.1 0.1 0.1 \
    --run-dir MEAN
evaluate --run-dir BEFORE --length-power 1.0 --out BEFORE_LONGER
evaluate --run-dir MEAN --length-power 1.0 --boxes "$BOXES" --out MEAN_LONGER
evaluate --run-dir MEAN --length-power 1.0 --beam 50 --consensus 6 --out MEAN_AGREED
compare BEFORE_LONGER MEAN_LONGER
compare MEAN_LONGER MEAN_AGREED

# The same with attention supervised by boxes.
train --run-dir BOXED --fit.epochs 6 --attention.supervision-weight 0.5 --attention.teacher "$TRAIN_BOXES"
rewarded --run-dir BOXED_REWARDED --init-from BOXED
python -m training.average BOXED BOXED_REWARDED --shares 0.75 0.25 --run-dir BOXED_MEAN
evaluate --run-dir BEFORE --boxes "$BOXES"
evaluate --run-dir BOXED --boxes "$BOXES"
compare BEFORE BOXED
evaluate --run-dir BOXED_MEAN --boxes "$BOXES" --length-power 1.0 --beam 50 --consensus 6 \
    --out BOXED_AGREED
