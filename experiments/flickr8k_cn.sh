#!/bin/sh
# Chinese over jieba's words: all of Flickr8k-CN's training images (people's captions, five each), in the folder
# FLICKR8K_CN, a narrow decoder over MobileNetV2, no reward, seed 0. Scores are over jieba's words of the 1,000 dev
# images.
set -eu
python -m training.train --recipe folder_soft --data-dir FLICKR8K_CN --data.language zh --data.tokens words \
    --data.segmenter jieba --data.min-count 5 --data.max-length 16 --search.max-length 16 \
    --decoder.hidden-dim 256 --decoder.embedding-dim 256 --decoder.attention-dim 128 \
    --fit.epochs 5 --fit.monitor last --run-dir zh_jieba
