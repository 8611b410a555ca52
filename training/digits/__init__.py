"""Systems that read digits: their data, recipes, training and evaluation.

The commands of `training` hand digit runs over to `run`, `publish`, `averaged` and `compare` here,
see `training.cli.digit_module`. This module loads no TensorFlow.
"""

from training.digits.recipes import RECIPES, parse

__all__ = ["RECIPES", "parse"]
