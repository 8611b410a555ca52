#!/bin/sh
# Kinds of tokens on 1,000 training and 200 dev images of Flickr8k with captions in German (Multi30k, task 2), Arabic
# (AIC-Flickr8k) and Chinese (Flickr8k-CN): OWN_de, OWN_ar, OWN_zh. MobileNetV2, a narrow decoder, seed 0, beam 5.
set -eu
run() {  # language, tokens, most tokens of a caption, name, further flags
  language=$1 tokens=$2 length=$3 name=$4
  shift 4
  python -m training.train --recipe folder_soft --data-dir OWN_$language --data.language $language \
      --data.tokens $tokens --data.max-length $length --search.max-length $length \
      --decoder.hidden-dim 256 --decoder.embedding-dim 256 --decoder.attention-dim 128 \
      --fit.epochs 6 --fit.patience 6 --fit.monitor nll --run-dir ${language}_$name "$@"
}
run de words 30 words
run de subwords 40 subwords_4000 --data.vocabulary-size 4000
run de subwords 40 subwords_1000 --data.vocabulary-size 1000
python -m training.compare de_words de_subwords_4000 de_subwords_1000 --score-tokens simple
run ar words 20 words
run ar subwords 26 subwords_4000 --data.vocabulary-size 4000
run ar subwords 26 subwords_1000 --data.vocabulary-size 1000
python -m training.compare ar_words ar_subwords_4000 ar_subwords_1000 --score-tokens simple
run zh characters 30 characters
run zh words 24 words
run zh subwords 24 subwords_4000 --data.vocabulary-size 4000
run zh subwords 24 subwords_1200 --data.vocabulary-size 1200
python -m training.compare zh_characters zh_words zh_subwords_4000 zh_subwords_1200 --score-tokens icu
