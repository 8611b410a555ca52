#!/bin/sh
# photos_soft: Flickr8k, COCO, animals and rooms, from flickr8k_soft. WIDE has a folder per further set,
# with captions.csv (image, caption, split). The recipe forbids a repeated trigram (run PHOTOS). Images
# are squeezed: even flickr8k_soft, which learned from cropped ones, scored no lower so. COCO's main
# object: the first 50 dev images by name, judged from captions against reference captions, by one
# person, who knew which captioner wrote them; a wrong sport or thing in hand counts as wrong. The 41
# everyday pictures were judged from thumbnails; 24 are ImageNet's, which the encoder may have learned
# from. "PHOTOS and 0.1 flickr8k_soft": means of the weights, of rows of words that both know, by a
# script that is not kept. PHOTOS was trained without the trigram rule, which is one of the search,
# its annotations came from the int8 graph of the encoder (a patch, not kept), and it was stopped
# while its graphs were compared; its confidence was learned afterwards. The training process took 87
# minutes of processor time on two cores beside other jobs, annotations about 40 more.
set -eu
PYTHONPATH="$(dirname "$0")/.." python -m experiments.photos "$DATA" "$WIDE" joined
python -m training.train --recipe folder_from_flickr8k --data-dir joined --run-dir PHOTOS \
    --encoder.resize squash --fit.epochs 5 --optimizer.learning-rate 4e-4 \
    --optimizer.warmup-epochs 0.2 --fit.validation-images 100 --fit.monitor last \
    --fit.precision float32 --attention.supervision-weight 0.5 --attention.teacher "$TRAIN_BOXES" \
    --search.beam 10 --search.consensus 5
python -m training.evaluate --run-dir PHOTOS --boxes "$BOXES"
python -m training.evaluate --run-dir PHOTOS --no-repeat-ngram 0 --out PHOTOS/evaluation/repeats
python -m training.publish PHOTOS photos_soft
