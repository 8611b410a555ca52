#!/usr/bin/env bash
# Making a MultiWorkerMirroredStrategy takes SIGTERM away from Python, which does not notice.
#
# Seen with: TensorFlow 2.21.0.
# A good guess: a handler that the program has set is called until the program sets another; the
# strategy's documentation names no signal.
# What is seen: with one worker already, the handler is no longer called once the strategy is made,
# and the process does not end either, while `signal.getsignal` still returns the handler. A handler
# that is set after the strategy is called. MirroredStrategy leaves the handler alone.
# It matters to: training under a scheduler, which asks a process to save and end by SIGTERM, and
# kills it when it does not.
# What we do: handlers are set again when the strategy is made, and workers wait for each other
# before that, where signals are still heard.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check tensorflow-cpu==2.21.0
cd "$work"
TF_CPP_MIN_LOG_LEVEL=3 "$work/venv/bin/python" -W ignore - 2>/dev/null <<'PY'
import json
import os
import signal
import socket
import time

import tensorflow as tf

with socket.create_server(("localhost", 0)) as server:
    address = f"localhost:{server.getsockname()[1]}"
task = {"type": "worker", "index": 0}
os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": [address]}, "task": task})
heard = []


def handler(number, frame):
    heard.append(number)


def calls():
    heard.clear()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(1.0)
    return len(heard)


signal.signal(signal.SIGTERM, handler)
seen = {"before": calls()}
several = tf.distribute.MultiWorkerMirroredStrategy()  # before any other operation
seen["several workers"] = calls()
seen["known to Python"] = int(signal.getsignal(signal.SIGTERM) is handler)
signal.signal(signal.SIGTERM, handler)
seen["set again"] = calls()
mirrored = tf.distribute.MirroredStrategy(["CPU:0"])
seen["mirrored"] = calls()
print("calls of the handler:", seen)
wanted = {"before": 1, "several workers": 0, "known to Python": 1, "set again": 1, "mirrored": 1}
assert seen == wanted, seen
PY
