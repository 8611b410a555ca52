"""The training data, from a data set's files to the batches of a step.

sources/          data sets by name; each loads as a `Split` of `Example`s (`examples.py`). Caption
                  files of every format are read in `sources/caption_files.py`
bucketing.py      captions as ids, and the plan of an epoch: which of them share a batch
image_loader.py   images read, decoded, turned upright and resized
feature_store.py  annotations of a frozen encoder, computed once (`extraction.py`) and kept on
                  disk (`feature_shards.py`)
input_source.py   a model's input by example: images in random views, or stored annotations
batches.py        where a batch is made: captions of the plan, their inputs, what teaches beside
boxes.py          boxes of what captions name (`box_files.py`), among their tokens and in the
                  encoder's view
"""
