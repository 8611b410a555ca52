#!/usr/bin/env bash
# Photographs whose names differ after their first dot are one sample to webdataset.
#
# Seen with: webdataset 1.0.2.
# A good guess: a sample's key is the file's name without its suffix, as in Path.stem.
# What is seen: the key ends at the first dot of the name. photo.v1 and photo.v2 become the sample
# photo with four fields, v1.jpg to v2.txt, and a pipeline that asks for jpg and txt skips it.
# It matters to: captions of cropped or numbered versions, which are lost without a word.
# What we do: our reader of tars pairs files by the whole name before the last dot.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check webdataset==1.0.2
cd "$work"
"$work/venv/bin/python" -W ignore - <<'PY'
import io
import tarfile

import webdataset

with tarfile.open("photos.tar", "w") as tar:
    for name in ("photo.v1", "photo.v2"):
        for suffix, content in (("jpg", b"pixels"), ("txt", name.encode())):
            member = tarfile.TarInfo(f"{name}.{suffix}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
samples = list(webdataset.WebDataset("photos.tar", shardshuffle=False))
fields = [sorted(key for key in sample if key[0] != "_") for sample in samples]
print([sample["__key__"] for sample in samples], fields)
assert fields == [["v1.jpg", "v1.txt", "v2.jpg", "v2.txt"]], fields
assert samples[0]["__key__"] == "photo"
skipping = webdataset.WebDataset("photos.tar", shardshuffle=False).to_tuple(
    "jpg", "txt", handler=webdataset.warn_and_continue
)
assert list(skipping) == []
PY
