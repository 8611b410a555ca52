"""Publish a digit run: its small files and its card, for `python -m training.publish RUN OUT`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import digits
from digits.config import CanvasData, DigitRunConfig, read_digit_config
from digits.evaluate import OWN_SETTINGS, Scorer, training_command
from digits.models.config import MODELS, ReaderConfig
from digits.recipes import single_dir
from digits.runs import load, load_scored
from sat_tf.inference import published
from sat_tf.inference.packing import GROUP, pack
from sat_tf.inference.run_folder import RunFolder, outdated_note
from sat_tf.inference.weights import weight_arrays
from sat_tf.util.errors import invalid_value

_INK = 20.0  # longer side of an MNIST digit, pixels

_LICENCE = "CC BY-SA 3.0, as MNIST"

_CARD = """---
library_name: sat_tf
pipeline_tag: image-classification
license: cc-by-sa-3.0
---

# {recipe}

{summary} Made by sat_tf, and small: it shows on the page (`make demo`) where such a model looks.

```python
import digits

reading = digits.load("{name}").read("drawing.png")
reading.answer, reading.corners  # what it read; where it looked
```

The files are JSON and arrays of NumPy; nothing in them is executed. `{manifest}` has their SHA-256,
which loading checks. Weights are rounded to 8 bits with a scale per {group} of them.{check}

## Data and licence

- Trained on the training digits of MNIST (LeCun et al., 1998) without the last {dev}, which are the
  dev digits.
- Use of these weights: {licence}.

## Scores

Examples that are read wrongly, made of the digits of a split; weights before rounding:

{scores}

```sh
{command} --data-dir DIR
```

## Not for

Reading digits that matter, such as amounts or addresses. Images unlike those of its training get an
answer too, often a confident one. A glimpse shows what entered the answer, which does not prove
that the answer depends on it.
"""

_SUMMARIES = {
    "ram": "A recurrent attention model (Mnih et al., 2014, arXiv:1406.6247), which reads a digit "
    "through a few small glimpses.",
    "dram": "A deep recurrent attention model (Ba et al., 2014, arXiv:1412.7755), which reads two "
    "digits through a few small glimpses.",
    "stn": "A Spatial Transformer (Jaderberg et al., 2015, arXiv:1506.02025), which rectifies a "
    "digit before a convolutional network reads it.",
}


def publish(
    run: Path, out: Path, licence: str | None = None, checked: tuple[str, Path | None] | None = None
) -> str:
    """Writes the files of a run's model and returns its card.

    Args:
        run: The run.
        out: The model's folder.
        licence: Terms of use for the card; those of MNIST by default.
        checked: A split and the folder of its `mnist.npz`, to compare run and model on.
    """
    digits.refuse_published(published.locate(run))
    config = read_digit_config(run)
    model = load(config, run)
    if checked:  # before anything is written: the data may be missing
        split, data_dir = checked
        scored = load_scored(run, split, config.data, data_dir)
    files = {
        published.CONFIG: reader_config(config).to_text().encode(),
        digits.WEIGHTS: pack(weight_arrays(model)),
    }
    published.write(out, files)
    for name, content in files.items():
        print(f"{len(content) / 1e6:7.2f} MB  {name}")
    check = ""
    if checked:
        before, after = (
            Scorer(one, config.data, scored, split).scores()["error"]
            for one in (model, digits.load(out).model)
        )
        check = f"With them {after:.2f} % of {len(scored):,} {split} examples are wrong, "
        check += f"{before:.2f} % without."
        print(check)
    return make_card(run, config, out.name, licence, check, model.weights_sha256)


def reader_config(config: DigitRunConfig) -> ReaderConfig:
    """Returns what a published model keeps of a run's configuration.

    Raises:
        ValueError: Its model reads no single drawing.
    """
    systems = {kind: name for name, kind in MODELS.items()}
    if type(config.model) not in systems:
        expected = "a run of RAM, DRAM or a Spatial Transformer"
        raise invalid_value("run", expected, f"one of {config.system}")
    data = config.data
    scales = (data.scale_from, data.scale_to) if isinstance(data, CanvasData) else (1.0, 1.0)
    return ReaderConfig(
        systems[type(config.model)],
        config.recipe,
        data.target,
        data.size,
        *(_INK * scale for scale in scales),
        model=config.model,
    )


def make_card(
    run_dir: Path,
    config: DigitRunConfig,
    name: str,
    licence: str | None,
    check: str,
    weights_sha256: str | None,
) -> str:
    """Returns the card as Markdown; see `training.publish.make_card`."""
    # The command itself trains the run on single digits, so its folder is not a flag; any other
    # origin is named without its folders.
    origin = config.init_from and Path(config.init_from).name
    first = single_dir(run_dir).name
    config = dataclasses.replace(config, init_from=None if origin == first else origin)
    return _CARD.format(
        recipe=config.recipe,
        summary=_SUMMARIES[reader_config(config).system],
        name=name,
        manifest=digits.MANIFEST,
        group=GROUP,
        check=f" {check}" if check else "",
        dev=f"{config.data.dev_digits:,}",
        licence=licence or _LICENCE,
        scores=_scores(run_dir, weights_sha256),
        command=training_command(config),
    )


def _scores(run_dir: Path, weights_sha256: str | None) -> str:
    lines = []
    for path in RunFolder(run_dir).reports():
        report = json.loads(path.read_text("utf-8"))
        if outdated := outdated_note(report, weights_sha256):
            lines.append(f"- {outdated}")
            continue
        line = f"- {report['split']}: {report['error']:.2f} % of {report['examples']:,} examples"
        if trained := report.get("training"):
            line += f", by epoch {trained['best_epoch']} of the {trained['epochs']} trained"
        if (settings := report.get("evaluated_with", OWN_SETTINGS)) != OWN_SETTINGS:
            line += f", with `{settings}`"
        lines.append(line)
    return "\n".join(lines) or "None were measured."
