#!/bin/sh
# What the maps of every table are compared with, over the 12,992 phrases of Flickr8k's dev captions
# that have boxes in Flickr30k Entities. An evaluation with boxes reports them; any run will do.
set -eu
python -m training.evaluate --run-dir runs/flickr8k_soft --data-dir "$DATA" --boxes "$BOXES"
