#!/usr/bin/env bash
# OneHotCategorical.log_prob is NaN, also of possible outcomes, once a logit is minus infinity.
#
# Seen with: tensorflow-probability 0.25.0, TensorFlow 2.21.0.
# A good guess: log 0.5 for one of two equally likely outcomes, as Categorical gives.
# What is seen: NaN (zero times minus infinity); entropy, and Categorical's log_prob, are right.
# It matters to: masked locations of hard attention. Mask with a large finite logit.
# What we do: log p of a location is the log-softmax of its score, without that product.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check \
  tensorflow==2.21.0 'tensorflow-probability[tf]==0.25.0' setuptools==80.9.0
TF_CPP_MIN_LOG_LEVEL=3 "$work/venv/bin/python" -W ignore - <<'PY'
import numpy as np
import tensorflow_probability as tfp

logits = [0.0, 0.0, -np.inf]
one_hot = tfp.distributions.OneHotCategorical(logits=logits)
index = tfp.distributions.Categorical(logits=logits)
seen = float(one_hot.log_prob([1.0, 0.0, 0.0])), float(index.log_prob(0)), float(one_hot.entropy())
print("OneHotCategorical, Categorical, entropy:", seen)
assert np.isnan(seen[0]) and np.allclose(seen[1:], [-np.log(2), np.log(2)]), seen
PY
