#!/bin/sh
# The captioners that ship: students of students. Two teachers (ResNet50 beside MobileNetV2, one with
# soft attention taught by boxes, one without attention), rewarded and averaged; two students at 224
# pixels (FIRST_*); from these, at 288 pixels, SOFT, NONE and HARD. Soft attention trained for five
# minutes on one GPU beside eight other runs, HARD and NONE for 11 and 28 minutes on two CPU cores
# beside other jobs, annotations not counted. The predictions used were those of published files, whose
# weights are rounded, so figures may differ slightly. Seed 1 repeats SOFT, HARD and NONE with --seed 1.
set -eu
train() {
  python -m training.train --data-dir "$DATA" --encoder.name resnet50+mobilenet_v2 \
      --encoder.layer conv5_block3_out+out_relu --encoder.weights compact.weights.h5 \
      --fit.precision bfloat16 --fit.validation-images 200 --attention.penalty-weight 0 \
      --decoder.annotation-dropout 0.5 --decoder.bottleneck-dim 512 "$@"
}
rewarded() {
  train --encoder.image-size 224 --reward.metric cider --reward.max-length 16 --fit.batch-size 32 \
      --fit.epochs 3 --optimizer.name adam --optimizer.learning-rate 1e-4 \
      --optimizer.warmup-epochs 0.1 "$@"
}
boxed() { "$@" --attention.supervision-weight 0.5 --attention.teacher "$TRAIN_BOXES"; }
student() {
  train --fit.distillation-weight 0.7 --search.beam 10 --search.consensus 5 "$@"
}
python -m training.standardize --recipe flickr8k_soft --data-dir "$DATA" --compact --images 500 \
    --encoder.name resnet50+mobilenet_v2 --encoder.layer conv5_block3_out+out_relu \
    --encoder.image-size 224 --out compact.weights.h5 \
    --encoder.weights resnet50_no_top.weights.h5+mobilenet_v2_no_top.weights.h5

# Teachers.
boxed train --recipe flickr8k_soft --run-dir TEACHER_SOFT --encoder.image-size 224 --fit.epochs 6
train --recipe flickr8k_none --run-dir TEACHER_NONE --encoder.image-size 224 --fit.epochs 6
rewarded --recipe flickr8k_soft --run-dir SOFT_R --init-from TEACHER_SOFT
rewarded --recipe flickr8k_none --run-dir NONE_R --init-from TEACHER_NONE
python -m training.average TEACHER_SOFT SOFT_R --shares 0.75 0.25 --run-dir SOFT_MEAN
python -m training.average TEACHER_NONE NONE_R --shares 0.75 0.25 --run-dir NONE_MEAN
python -m training.distill SOFT_MEAN NONE_MEAN --data-dir "$DATA" --out predictions.npz

# Students at 224 pixels.
boxed student --recipe flickr8k_soft --run-dir FIRST_SOFT --encoder.image-size 224 \
    --fit.predictions predictions.npz --fit.epochs 8
student --recipe flickr8k_none --run-dir FIRST_NONE --encoder.image-size 224 \
    --fit.predictions predictions.npz --fit.epochs 8
python -m training.distill FIRST_SOFT FIRST_NONE --data-dir "$DATA" --out students.npz

# Their students at 288 pixels.
boxed student --recipe flickr8k_soft --run-dir SOFT --encoder.image-size 288 \
    --fit.predictions students.npz --fit.epochs 8
student --recipe flickr8k_none --run-dir NONE --encoder.image-size 288 \
    --fit.predictions students.npz --fit.epochs 8
boxed student --recipe flickr8k_hard --run-dir HARD --encoder.image-size 288 \
    --fit.predictions students.npz --fit.epochs 1 --init-from SOFT --optimizer.learning-rate 2e-4 \
    --optimizer.warmup-epochs 0.5 --attention.preset vimco --attention.expectation-probability 0.8
for run in FIRST_SOFT SOFT HARD NONE; do
  python -m training.evaluate --run-dir $run --data-dir "$DATA" --boxes "$BOXES"
done
python -m training.compare NONE HARD SOFT --data-dir "$DATA"
python -m training.compare SOFT HARD --data-dir "$DATA"
python -m training.compare FIRST_SOFT SOFT --data-dir "$DATA"

# --- deletion.csv ---
# Which maps point, and which matter: the same settings without and with boxes, over the encoder of
# the captioners that ship, and these. Three epochs from new weights, no mirrored images; the hard
# one is an epoch from the soft one. Falls are means over the content words of own captions: of all
# dev images for flickr8k_soft, of the first 400 for the others. Builds on the folder of shipped.sh.
(
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
)
