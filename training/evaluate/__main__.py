"""`python -m training.evaluate`."""

from sat_tf.util.commands import run_process
from training.evaluate.command import main

if __name__ == "__main__":
    run_process(main)
