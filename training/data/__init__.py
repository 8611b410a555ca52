"""The training data, from a data set's files to the batches of a step.

readers/          data sets by name; each loads as a `Split` of `Example`s (`examples.py`)
dataset.py        the record of a run's data, and the digests by which images are known
captions.py       captions as ids
image_loader.py   a model's input by example: images, decoded, turned upright and resized
feature_store.py  or annotations of a frozen encoder, computed once and kept on disk
batches.py        which captions share a batch, and that batch with its inputs
inputs.py         all of these together, as a run reads them
boxes.py          boxes of what captions name (`box_files.py`), among their tokens and in the
                  encoder's view
"""
