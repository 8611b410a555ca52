#!/bin/sh
# The highest scores: the captioner that ships, rewarded again and averaged (AGAIN_MEAN), three seeds;
# and what images of 288 instead of 224 pixels bring a student (STUDENT_*). Run in the folder of
# shipped.sh. Runs are named "beam, length power, consensus" in the table; rows change these flags.
# Seeds 0 and 1 were trained on one GPU beside eight other runs: five minutes each, the rewarded ones
# one and a half.
set -eu
train() {
  python -m training.train --recipe flickr8k_soft --data-dir "$DATA" \
      --encoder.name resnet50+mobilenet_v2 --encoder.layer conv5_block3_out+out_relu \
      --encoder.weights compact.weights.h5 --fit.precision bfloat16 --fit.validation-images 200 \
      --attention.penalty-weight 0 --decoder.annotation-dropout 0.5 \
      --decoder.bottleneck-dim 512 "$@"
}
student() {
  train --fit.distillation-weight 0.7 --fit.predictions students.npz --fit.epochs 8 \
      --attention.supervision-weight 0.5 --attention.teacher "$TRAIN_BOXES" "$@"
}
rewarded() {
  train --encoder.image-size 288 --reward.metric cider --reward.max-length 16 --fit.batch-size 32 \
      --fit.epochs 3 --optimizer.name adam --optimizer.learning-rate 1e-4 \
      --optimizer.warmup-epochs 0.1 "$@"
}
rewarded --run-dir AGAIN --init-from SOFT
python -m training.average SOFT AGAIN --shares 0.75 0.25 --run-dir AGAIN_MEAN
for seed in 1 2; do
  student --encoder.image-size 288 --search.beam 10 --search.consensus 5 --run-dir SOFT_$seed \
      --seed $seed
  rewarded --run-dir AGAIN_$seed --init-from SOFT_$seed --seed $seed
  python -m training.average SOFT_$seed AGAIN_$seed --shares 0.75 0.25 --run-dir AGAIN_MEAN_$seed
done
for run in SOFT SOFT_1 AGAIN_MEAN AGAIN_MEAN_1 AGAIN_MEAN_2; do
  python -m training.evaluate --run-dir $run --data-dir "$DATA" --beam 5 --length-power 1.0 \
      --consensus 0 --out ${run}_5
done
python -m training.compare SOFT_5 SOFT_1_5 AGAIN_MEAN_5 AGAIN_MEAN_1_5 --seeds 2 --data-dir "$DATA"

student --encoder.image-size 224 --run-dir STUDENT_224
student --encoder.image-size 288 --run-dir STUDENT_288
python -m training.evaluate --run-dir STUDENT_224 --data-dir "$DATA" --boxes "$BOXES"
python -m training.evaluate --run-dir STUDENT_288 --data-dir "$DATA" --boxes "$BOXES"
python -m training.compare STUDENT_224 STUDENT_288 --data-dir "$DATA"
