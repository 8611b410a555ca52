#!/bin/sh
# Kinds of tokens on 1,000 training and 200 dev images of Flickr8k with captions in German (Multi30k, task 2), Arabic
# (AIC-Flickr8k), Portuguese (Framed Multi30k), Hindi (ImageCaptionHindi, by machine, one per image) and Chinese
# (Flickr8k-CN): OWN_de, OWN_ar, OWN_pt, OWN_hi, OWN_zh. MobileNetV2, a narrow decoder, beam 5, seeds 0 and 1, but
# 4,000 subwords with seed 0 alone. Unknown tokens: `unknown_share` of dev that `python -m training.inspect` writes for
# all images, with --data.min-count 5.
set -eu
run() {  # language, tokens, most tokens of a caption, name, further flags
  language=$1 tokens=$2 length=$3 name=$4
  shift 4
  python -m training.train --recipe folder_soft --data-dir OWN_$language --data.language $language \
      --data.tokens $tokens --data.max-length $length --search.max-length $length --seed $seed \
      --decoder.hidden-dim 256 --decoder.embedding-dim 256 --decoder.attention-dim 128 \
      --fit.epochs 6 --fit.patience 6 --fit.monitor nll --run-dir ${language}_${name}_$seed "$@"
}
for seed in 0 1; do
  for language in de pt hi; do
    run $language words 30 words
    run $language subwords 40 subwords_1000 --data.vocabulary-size 1000
  done
  run ar words 20 words
  run ar subwords 26 subwords_1000 --data.vocabulary-size 1000
  run zh characters 30 characters
  run zh words 24 words
  run zh subwords 24 subwords_1200 --data.vocabulary-size 1200
  for language in de ar pt hi; do
    python -m training.compare ${language}_words_$seed ${language}_subwords_1000_$seed --score-tokens simple
  done
  python -m training.compare zh_characters_$seed zh_words_$seed zh_subwords_1200_$seed --score-tokens icu
done
seed=0
run de subwords 40 subwords_4000 --data.vocabulary-size 4000
run ar subwords 26 subwords_4000 --data.vocabulary-size 4000
run zh subwords 24 subwords_4000 --data.vocabulary-size 4000
for language in de ar; do
  python -m training.compare ${language}_words_0 ${language}_subwords_4000_0 --score-tokens simple
done
python -m training.compare zh_characters_0 zh_subwords_4000_0 --score-tokens icu
