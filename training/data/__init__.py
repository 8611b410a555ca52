"""The training data, from a data set's files to the batches of a step.

sources/          data sets by name; each loads as a `Split` of `Example`s (`examples.py`)
bucketing.py      captions as ids, and the plan of an epoch: which of them share a batch
image_reader.py   one image: read, decoded, turned upright (`augmentation.py`: cropped, mirrored)
feature_store.py  annotations of a frozen encoder, computed once (`extraction.py`) and kept on
                  disk (`feature_shards.py`)
boxes.py          boxes of what captions name (`box_files.py`), placed among their tokens
                  (`caption_alignment.py`: of another edition) and in the encoder's view
                  (`box_views.py`), as maps (`attention_targets.py`)
word_locator.py   the same maps from captions alone, by a classifier of words
                  (`locator_training.py`)
input_source.py   a model's input by example: images, or annotations from the feature store
input_pipeline.py where a batch is made: captions of the plan, their inputs, `tf.data` around
                  them (`prefetch.py`)
digits/           the same for the digit systems
"""
