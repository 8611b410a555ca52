"""Publish a run's model in small, plain files: `python -m training.publish RUN OUT`.

A card has data, licence, scores, and wrong uses of the captioner.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from sat_tf.config import JOIN, other_search, weights_files
from sat_tf.inference import published
from sat_tf.inference.run_folder import RunFolder, outdated_note, read_average
from sat_tf.scores.tokens import NOT_WORDS, OVER_CHARACTERS
from sat_tf.util.commands import exit_status, loading, parse_flags
from sat_tf.util.errors import invalid_value
from sat_tf.util.fields import replaced, to_dict
from sat_tf.util.files import write_atomically
from training.data.dataset import read_data_dir
from training.evaluation.report import SIGNATURE, score_rows
from training.run.config import RunConfig, read_run_config

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sat_tf.inference.keras_captioner import KerasCaptioner

# An encoder can be rounded before its decoder is trained (training.standardize --compact). The
# rounding of a decoder comes after training and is felt in its captions: it is the finer one.
_BITS = {"encoder": 8, "decoder": 10}
_PHOTOGRAPHS = "non-commercial research and education only, as its photographs belong to others"
_SOURCES = {
    "scenes": ("drawn scenes of this project", None),
    "flickr8k": ("Flickr8k (Hodosh et al., 2013)", _PHOTOGRAPHS),
    "flickr30k": ("Flickr30k (Young et al., 2014)", _PHOTOGRAPHS),
    "coco_captions": ("COCO captions (Chen et al., 2015)", "the terms of cocodataset.org"),
    "folder": ("the publisher's own images", None),
}
_KNOWS = {"flickr8k": "It knows people and dogs outdoors; trained on 6,000 photographs."}
_UNSTATED = "not stated; ask the publisher"
_ORIGINS = {
    "keras_hub:dinov2_small": " (DINOv2 of Meta AI, Oquab et al., 2024, Apache-2.0)",
    "mobilenet_v2": " (Sandler et al., 2018, ImageNet weights, Apache-2.0)",
    "resnet50": " (ImageNet weights of He et al., 2016, converted by Keras, MIT)",
}
_SCORES = {
    **{f"bleu_{n}": f"BLEU-{n}" for n in range(1, 5)},
    "meteor": "METEOR",
    "cider": "CIDEr",
    "pointing_game": "maximum of the map inside the named object's box, % of phrases",
    "pointing_game_centre": "the same of the image centre in place of the map",
    "calibration_error": "calibration error of the words' probabilities, percentage points",
}
_TEACHING = {
    "boxes": "Attention was supervised by people's boxes of what the training captions name: the "
    "maps show what those boxes taught it.",
    "captioners": "Words were learned from predictions of other captioners, too.",
    "reward": "Sampled captions were rewarded for CIDEr-D, alone or with other metrics.",
}
_MAPS = (
    "A map shows which parts of the image the decoder read for a word, which does not prove "
    "that the word depends on them.\n"
)
_CARD = Path(__file__).with_name("run") / "card.md"


@dataclass(frozen=True)
class Arguments:
    """Write a run's model as a folder that `sat_tf.load` reads: small weights and a card."""

    run: tyro.conf.Positional[Path]
    """The run, finished and evaluated."""
    out: tyro.conf.Positional[Path]
    """The model's folder: new, empty, or a published model to replace; its name is the model's."""
    share_encoder: bool = False
    """Write the encoder next to OUT, where captioners with the same one share it."""
    licence: str | None = None
    """Terms of use of the weights, for the card; the data set's by default."""
    source: str | None = None
    """Origin of the training images and captions, for the card; the data set by default."""
    knows: str | None = None
    """Subjects that the captioner knows, for the card: one or two sentences."""
    data_dir: Path | None = None
    """Your copy of the data set, with training images to correct the graphs; the one that the run
    was trained on by default."""


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    arguments = parse_flags(Arguments, argv, "training.publish")
    return exit_status(lambda: run(arguments))


def run(arguments: Arguments) -> None:
    """Publishes the run, writes the card."""
    check_out(arguments.out)
    write_atomically(arguments.out / published.CARD, publish(arguments))
    from training.run.checkpoints import unfinished_note

    for note in unfinished_note(published.locate(arguments.run)):
        print(f"Note: {note}")
    print(f"Published {arguments.run} as {arguments.out}; read its card: {published.CARD}")


def check_out(out: Path) -> None:
    """Checks that publishing replaces no files but those of an earlier publication.

    Raises:
        ValueError: OUT has other files; hidden ones, such as those of git, do not count.
    """
    if published.manifest_of(out) is not None or not out.exists():
        return
    others = [out] if out.is_file() else [one for one in out.iterdir() if one.name[0] != "."]
    if others:
        expected = "a folder that is new, empty or a published model"
        raise invalid_value("out", expected, f"{out}, which has {min(others).name}")


def publish(arguments: Arguments) -> str:
    """Writes the files of a run's captioner, returns the card."""
    config, folder, out = read_run_config(arguments.run), RunFolder(arguments.run), arguments.out
    with loading():
        from sat_tf.inference.load import load_captioner

    captioner, teachers = load_captioner(arguments.run), teachers_of(arguments.run)
    files = packed_files(captioner, config, folder.vocabulary) | _kept_encoder(config)
    encoder, decoder = (
        hashlib.sha256(files[name]).hexdigest() for name in published.WEIGHTS.values()
    )
    files |= captioner.limits.files([encoder], [encoder, decoder])
    published.write(out, files, arguments.share_encoder, teachers)
    compact = load_captioner(out)  # graphs are of the rounded weights
    files |= graph_templates(compact, config, files, arguments)
    grid = compact.grid if config.attention.kind != "none" else None
    facts = {"precision": "int8", "grid": grid}
    published.write(out, files, arguments.share_encoder, teachers, **facts)
    for name, content in files.items():
        print(f"{len(content) / 1e3:9,.1f} kB  {name}")
    told = (arguments.licence, arguments.source, arguments.knows)
    return make_card(arguments.run, config, out.name, *told, captioner.weights_sha256)


def _kept_encoder(config: RunConfig) -> dict[str, bytes]:
    """Returns the encoder's file of the published captioner that a frozen encoder is from.

    Rounding rounded weights again can move a scale, and captioners would no longer share the file.
    """
    if config.encoder.trainable or config.init_from is None:
        return {}
    with contextlib.suppress(ValueError):  # it was removed
        origin = published.locate(config.init_from)
        if published.is_published(origin):
            name = published.WEIGHTS["encoder"]
            return {name: published.checked_content(origin, name)}
    return {}


def graph_templates(
    captioner: KerasCaptioner, config: RunConfig, files: Mapping[str, bytes], arguments: Arguments
) -> dict[str, bytes]:
    """Returns the graphs of a published captioner without their weights, see `assembly`.

    Neighbours with the same encoder share its graph; another one's biases are corrected on the
    training images of the run.
    """
    from sat_tf.inference.graphs import convert_graphs
    from sat_tf.inference.packing import make_template
    from sat_tf.inference.unpacking import Packed
    from training.data.readers import load_split
    from training.evaluation.graphs import CORRECTED, pixels_of

    shared, photographs = _shared_template(arguments.out, files[published.WEIGHTS["encoder"]]), None
    if not shared:
        data_dir = arguments.data_dir or read_data_dir(RunFolder(arguments.run))
        train = load_split(config.data, "train", data_dir)
        photographs = [*pixels_of(captioner, train, CORRECTED)]
    graphs = convert_graphs(captioner, config.search, "int8", photographs)
    parts = [Packed(files[published.WEIGHTS[part]]) for part in ("encoder", "decoder", "decoder")]
    made = zip(published.TEMPLATES, graphs.values(), parts, strict=True)
    return {name: make_template(graph, part) for name, graph, part in made} | shared


def _shared_template(out: Path, encoder: bytes) -> dict[str, bytes]:
    """Returns the graph of the same encoder from a captioner next to OUT, if there is one."""
    digest, name = hashlib.sha256(encoder).hexdigest(), published.TEMPLATES[0]
    for path in sorted(out.absolute().parent.glob(f"*/{published.MANIFEST}")):
        files = published.read_marker(path.parent).files
        if files.get(published.WEIGHTS["encoder"]) == digest and name in files:
            return {name: published.checked_content(path.parent, name)}
    return {}


def packed_files(
    captioner: KerasCaptioner, config: RunConfig, vocabulary: Path
) -> dict[str, bytes]:
    """Returns the content of each file of a published captioner; of paths, the names are kept."""
    from sat_tf.inference.packing import pack
    from sat_tf.inference.weights import weight_arrays

    weights = JOIN.join(Path(file).name for file in weights_files(config.encoder.weights)) or None
    origin = config.init_from and published.bare_name(config.init_from)
    config = replaced(config.without_files(), encoder={"weights": weights}, init_from=origin)
    arrays = weight_arrays(captioner.model)
    return {
        published.CONFIG: (json.dumps(to_dict(config), indent=1) + "\n").encode(),
        published.VOCABULARY: vocabulary.read_bytes(),
        **{
            file: pack({k: v for k, v in arrays.items() if k.startswith(f"{part}/")}, _BITS[part])
            for part, file in published.WEIGHTS.items()
        },
    }


def make_card(
    run_dir: Path,
    config: RunConfig,
    name: str,
    licence: str | None = None,
    source: str | None = None,
    knows: str | None = None,
    weights_sha256: str | None = None,
) -> str:
    """Returns the card as Markdown.

    Args:
        run_dir: The run, with its evaluations.
        config: Its configuration.
        name: The name that `sat_tf.load` takes.
        licence: Terms of use of the weights; by default those of the data sets.
        source: The data that it learned from; by default the names of the data sets.
        knows: What it knows; by default told for a pretrained captioner's data set.
        weights_sha256: SHA-256 of the weights that are published; of the run's now by default.
    """
    from sat_tf.inference.unpacking import GROUP

    names = dict.fromkeys(config.data.name for _, config in _lineage(run_dir))
    sources = [_SOURCES.get(name, (name, None)) for name in names]
    (usual, terms), *earlier = sources
    source = source or usual
    licence = licence or next((asked for _, asked in sources if asked), _UNSTATED)
    before = "; it started from a captioner trained on {}, whose terms apply to it, too: {}"
    source += "".join(before.format(name, asked or _UNSTATED) for name, asked in earlier)
    attends, encoder = config.attention.kind != "none", config.encoder
    named = " and ".join(name + _ORIGINS.get(name, "") for name in encoder.name.split(JOIN))
    looks = "An image captioner that shows where it looked for each word"
    if config.data.limit is None:
        knows = knows or _KNOWS.get(config.data.name)
    return _CARD.read_text("utf-8").format(
        purpose=looks if attends else "An image captioner that looks nowhere, for comparison",
        alpha="\ncaption.alpha  # the attention map of each word" if attends else "",
        maps=_MAPS if attends else "",
        language=config.data.language,
        short_licence=config.data.name if licence == terms else "see-below",
        recipe=config.recipe,
        attention=config.attention.kind if attends else "no",
        name=name,
        group=GROUP,
        knows=f"## What it knows\n\n{knows}\n\n" if knows else "",
        source=source,
        teaching="".join(f" {_TEACHING[name]}" for name in teachers_of(run_dir)),
        encoder=f"{named}, {'trained with the decoder' if encoder.trainable else 'frozen'}.",
        licence=licence,
        scores=_scores(run_dir, config, weights_sha256 or RunFolder(run_dir).weights_sha256()),
    )


def teachers_of(run_dir: Path) -> list[str]:
    """Returns the other teachers of a run, or of those it started from.

    They are "boxes", "captioners" or "reward".
    """
    found = []
    for path, config in reversed(_lineage(run_dir)):
        if published.is_published(path):
            found += published.taught_by(path)
            continue
        found += ["boxes"] * bool(config.attention.supervision_weight)
        found += ["captioners"] * bool(config.fit.distillation_weight)
        found += ["reward"] * (config.reward.metric != "none")
    return list(dict.fromkeys(found))


def _lineage(run_dir: Path) -> list[tuple[Path, RunConfig]]:
    """Returns a run, then those it started from or averages, as far as they are still there."""
    found: dict[Path, RunConfig] = {}
    names: list[str | Path] = [run_dir]
    for name in names:
        with contextlib.suppress(ValueError):  # it was removed
            path = published.locate(name)
            if path not in found:
                found[path] = read_run_config(path)
                names += [*read_average(path)] or filter(None, [found[path].init_from])
    return [*found.items()]


def _scores(run_dir: Path, config: RunConfig, weights_sha256: str | None) -> str:
    """Returns a table of the main scores for each split that the weights were evaluated on."""
    parts = []
    folder = RunFolder(run_dir)
    for path in folder.reports():
        report = json.loads(path.read_text("utf-8"))
        if "captions" in report:  # of captions from elsewhere
            continue
        if outdated := outdated_note(report, weights_sha256):
            parts.append(outdated)
            continue
        scores, intervals = (
            {label: found[name] for name, label in _SCORES.items() if name in found}
            for found in (report.get(key) or {} for key in ("scores", "intervals"))
        )
        header = ("score", report["split"], "95 % interval")[: 3 if intervals else 2]
        rows = [header, ["---"] * len(header), *score_rows(scores, intervals)]
        table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
        parts.append(f"{report['images']:,} images of the {report['split']} split:\n\n{table}")
        parts.append(SIGNATURE.format(f"`{report['signature']}`"))
        parts += [NOT_WORDS] if report["tokeniser"] in OVER_CHARACTERS else []
        parts += filter(None, [other_search(report["search"], to_dict(config.search))])
    return "\n\n".join(parts) or "None were measured."


if __name__ == "__main__":
    sys.exit(main())
