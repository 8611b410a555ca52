"""The tables of the documentation, made from the figures in `experiments/*.csv`.

A page holds a table between `<!-- table NAME -->` and `<!-- end of table -->`; with `--write`,
the table of that name replaces its content.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import statistics
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent
_BLOCK = re.compile(r"(<!-- table (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)

_COMMANDS = {
    **dict.fromkeys(("controls", "mobilenet_v2", "resnet50"), "flickr8k"),
    **dict.fromkeys(("paper_scores", "distilled_vgg19"), "vgg19"),
    "deletion": "shipped",
    "own_photographs": "fine_tuning",
}
"""NAME.sh with the commands of an experiment, where it is not the experiment's own name."""

_LAST_COMMIT = "8563600a"
"""The last commit that has the commands of every other experiment."""


@dataclass(frozen=True)
class Row:
    """A run of an experiment; its first cell links to its commands."""

    label: str
    experiment: str
    run: str
    seed: str  # or the seeds whose mean is shown, such as 0-2


@dataclass(frozen=True)
class Column:
    """Scores of a run, by name in reports, shown in one cell with slashes between them."""

    heading: str
    scores: tuple[str, ...]
    spread: bool = False  # an interval follows in brackets, a standard deviation in parentheses
    digits: int | None = None  # decimals; those of the file by default


_POINTING = Column("pointing game, all / small", ("pointing_game", "pointing_game_small"))
_METEOR = Column("METEOR", ("meteor",))
_CIDER = Column("CIDEr", ("cider",), spread=True)
_CAPTIONS = (Column("BLEU-4", ("bleu_4",)), _METEOR, _CIDER)
_BLEU = ("bleu_1", "bleu_2", "bleu_3", "bleu_4")

COLUMNS: dict[str, tuple[Column, ...]] = {
    "start": (*_CAPTIONS, _POINTING),
    "recipes": (*_CAPTIONS, Column("perplexity", ("perplexity",)), _POINTING),
    "paper": (
        Column("BLEU-1 / 2 / 3 / 4, no brevity penalty", tuple(f"{name}_no_bp" for name in _BLEU)),
        Column("with brevity penalty", _BLEU),
        _METEOR,
        _CIDER,
    ),
    "maps": (
        _POINTING,
        Column("gain", ("nll_phrase_gain",), digits=2),
        Column("CIDEr", ("cider",)),
    ),
    "shipped": (
        *_CAPTIONS,
        _POINTING,
        Column("gain", ("nll_phrase_gain",), spread=True),
        Column("calibration error of words", ("calibration_error",)),
    ),
    "deletion": (
        _POINTING,
        Column("gain", ("nll_phrase_gain",), digits=2),
        Column("fall, attended", ("attended",), spread=True),
        Column("random / another word's / centre", ("random", "other", "centre")),
        Column("ratio to random", ("ratio",), spread=True),
        Column("attended over another word's", ("over_other",), spread=True),
    ),
    "estimators": (
        *(Column(name, (name,), spread=True) for name in ("variance", "cosine")),
        Column("ELBO", ("elbo",), spread=True),
        Column("IW bound 50", ("importance_weighted_bound_50",), spread=True),
        Column("BLEU-4", ("bleu_4",), spread=True),
        Column("pointing game", ("pointing_game",), spread=True),
        Column("minutes", ("minutes",), spread=True),
    ),
    "speed": tuple(
        Column(f"{data}, {score}", (f"{data} {score}",))
        for data in ("Flickr8k", "COCO")
        for score in ("captions/s", "x baseline")
    ),
}
"""Columns of each table; rows.tsv has its rows."""


def read_rows(name: str) -> list[Row]:
    """Returns the rows of a table."""
    with (FOLDER / "rows.tsv").open(encoding="utf-8") as file:
        lines = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [Row(*list(line.values())[1:]) for line in lines if line["table"] == name]


def read_figures(experiment: str) -> dict[tuple[str, str, str], dict[str, str]]:
    """Returns the figures of an experiment by (run, seed, score)."""
    with (FOLDER / f"{experiment}.csv").open(encoding="utf-8", newline="") as file:
        return {(line["run"], line["seed"], line["score"]): line for line in csv.DictReader(file)}


def _cell(figures: dict, row: Row, column: Column) -> str:
    """Returns a run's scores as one cell: the mean of its seeds if the file has only those."""
    shown = []
    for score in column.scores:
        line = figures.get((row.run, row.seed, score))
        if line is None and "-" in row.seed:
            first, last = map(int, row.seed.split("-"))
            seeds = [figures.get((row.run, str(n), score)) for n in range(first, last + 1)]
            if all(seeds):
                mean = statistics.mean(float(seed["value"]) for seed in seeds)
                line = {"value": f"{mean:.3f}", "low": "", "high": "", "sd": ""}
        if line is None:
            shown.append("–")
            continue
        value = line["value"]
        text = value if column.digits is None else f"{float(value):.{column.digits}f}"
        if column.spread and line["low"]:
            text += f" [{line['low']}, {line['high']}]"
        if column.spread and line["sd"]:
            text += f" ({line['sd']})"
        shown.append(text)
    return " / ".join(shown) if set(shown) != {"–"} else ""


def table(name: str, page: Path) -> str:
    """Returns a table in Markdown, with links as they have to be on that page."""
    columns = COLUMNS[name]
    folder = os.path.relpath(FOLDER, page.parent)
    lines = [["", *(column.heading for column in columns)], ["---"] * (len(columns) + 1)]
    for row in read_rows(name):
        figures = read_figures(row.experiment)
        cells = [_cell(figures, row, column) for column in columns]
        if not any(cells):
            raise ValueError(f"{row.experiment}.csv has no figure of {row.run!r}, {row.seed!r}.")
        commands = f"{_COMMANDS.get(row.experiment, row.experiment)}.sh"
        link = f"[{row.label}]({folder}/{commands})"
        kept = (FOLDER / commands).exists()
        label = link if kept else f"{row.label} (commit {_LAST_COMMIT})"
        lines.append([label, *cells])
    return "".join(
        "|" + "".join(f" {cell} |" if cell else " |" for cell in line) + "\n" for line in lines
    )


def filled(page: Path) -> str:
    """Returns the text of a page with its tables made anew."""
    text = page.read_text(encoding="utf-8")
    return _BLOCK.sub(lambda found: f"{found[1]}{table(found[2], page)}{found[3]}", text)


def main() -> int:
    """Writes the tables into the pages, or names the pages with outdated tables."""
    parser = argparse.ArgumentParser(prog="python -m experiments.tables", description=__doc__)
    parser.add_argument("--write", action="store_true", help="rewrite the pages")
    write = parser.parse_args().write
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    outdated = [page for page in pages if filled(page) != page.read_text(encoding="utf-8")]
    for page in outdated:
        if write:
            page.write_text(filled(page), encoding="utf-8")
        print(f"{page.relative_to(ROOT)}: {'written' if write else 'out of date'}")
    return 0 if write or not outdated else 1


if __name__ == "__main__":
    raise SystemExit(main())
