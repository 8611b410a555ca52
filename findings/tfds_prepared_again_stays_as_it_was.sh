#!/usr/bin/env bash
# Preparing a TFDS data set again in another file format does nothing and says nothing.
#
# Seen with: tensorflow-datasets 4.9.10, TensorFlow 2.21.0.
# A good guess: download_and_prepare(file_format="array_record") converts, or raises an error.
# What is seen: it returns; the files and info.file_format stay TFRecord, and reading by random
# access fails later. The same format given to the constructor raises a ValueError at once.
# It matters to: data sets prepared as TFRecord whose reader needs array_record.
# What we do: the reader of COCO refuses such records, with the command that converts them.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check \
  tensorflow==2.21.0 tensorflow-datasets==4.9.10 importlib_resources==6.5.2
cat > "$work/try.py" <<'PY'
import os
import sys

import numpy as np
import tensorflow_datasets as tfds

tfds.disable_progress_bar()


class Tiny(tfds.core.GeneratorBasedBuilder):
    """Three numbers."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        features = tfds.features.FeaturesDict({"x": np.int64})
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, _):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        yield from ((number, {"x": number}) for number in range(3))


Tiny(data_dir=sys.argv[1]).download_and_prepare(file_format="tfrecord")
again = Tiny(data_dir=sys.argv[1])
again.download_and_prepare(file_format="array_record")
files = sorted(os.listdir(again.data_dir))
print("after the second preparation:", files, again.info.file_format)
assert any("tfrecord" in name for name in files), files
assert not any("array_record" in name for name in files), files
try:
    again.as_data_source("train")
except NotImplementedError as error:
    print("as_data_source:", str(error).split(".")[0])
else:
    raise AssertionError("random access works")
try:
    Tiny(data_dir=sys.argv[1], file_format="array_record")
except ValueError as error:
    print("the constructor:", error)
else:
    raise AssertionError("the constructor takes another format")
PY
TF_CPP_MIN_LOG_LEVEL=3 "$work/venv/bin/python" -W ignore "$work/try.py" "$work/data"
