#!/bin/sh
# Five captioners as teachers (three AGAIN_MEAN of larger_images.sh, NONE with two seeds): better
# teachers brought the students no further. Run in the folder of larger_images.sh; TAUGHT_0 and
# vgg.weights.h5 are those of distilled_vgg19.sh. One run each.
set -eu
python -m training.distill AGAIN_MEAN AGAIN_MEAN_1 AGAIN_MEAN_2 NONE NONE_1 --data-dir "$DATA" \
    --out five.npz
five() {
  python -m training.train --data-dir "$DATA" --fit.precision bfloat16 --fit.validation-images 200 \
      --fit.distillation-weight 0.7 --fit.predictions five.npz --optimizer.learning-rate 4e-4 \
      --optimizer.warmup-epochs 0.1 "$@"
}
five --recipe flickr8k_soft --run-dir MORE --init-from SOFT --fit.epochs 3 \
    --encoder.name resnet50+mobilenet_v2 --encoder.layer conv5_block3_out+out_relu \
    --encoder.image-size 288 --encoder.weights compact.weights.h5 --attention.penalty-weight 0 \
    --decoder.annotation-dropout 0.5 --decoder.bottleneck-dim 512 \
    --attention.supervision-weight 0.5 --attention.teacher "$TRAIN_BOXES"
five --recipe flickr8k_vgg19_soft --run-dir TAUGHT_MORE --init-from TAUGHT_0 --fit.epochs 4 \
    --encoder.weights vgg.weights.h5 --data.mirror False
python -m training.evaluate --run-dir MORE --data-dir "$DATA" --beam 5 --length-power 1.0 --consensus 0
python -m training.evaluate --run-dir TAUGHT_MORE --data-dir "$DATA"
