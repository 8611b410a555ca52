"""The site: builds without a warning, with the pages, the API and links that resolve."""

import dataclasses
import importlib
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote

import pytest

from sat_tf.__main__ import COMMANDS
from training.run.config import RunConfig

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "experiments").glob("*.md")]
MOST_WORDS, MOST_README_LINES = 15_000, 110
OTHERS = ("digits.md", "CHANGELOG.md")
"""Pages that name other settings: those of digits, and removed ones."""
LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]*)#?([^)\s]*)\)")

PATH = re.compile(r"`((?:sat_tf|training|serving|tests|benchmarks|experiments)/[\w./]+)`")
MODULE = re.compile(r"python -m ((?:training|serving|benchmarks|experiments|digits)[\w.]*)")
COMMAND = re.compile(r"(?:python -m (\S+)|(sat-tf) (\S+))(.*)")
KEY = re.compile(
    r"(?:`|--)(data|encoder|decoder|attention|search|optimizer|fit|reward)\."
    r"(?!json|npz|tflite)([a-z][\w-]+)"
)


def headings(page: Path) -> set[str]:
    """Returns the anchors of a page's headings, as GitHub makes them."""
    lines = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The built site; any warning fails the build."""
    for name in ("sphinx", "myst_nb", "furo"):
        pytest.importorskip(name, reason=f"the site needs {name}: pip install -e '.[docs]'")
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    command += ["-d", str(out / "doctrees"), str(ROOT / "docs"), str(out / "html")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return out / "html"


def test_every_command_is_on_the_page_of_commands():
    page = (ROOT / "docs" / "api" / "commands.rst").read_text("utf-8")
    assert set(re.findall(r"^``sat-tf ([\w-]+)``$", page, re.MULTILINE)) == set(COMMANDS)


def test_links_of_the_pages_lead_to_files_and_headings():
    """Checks what the site does not: pages as they are read in the repository."""
    broken = []
    for page in PAGES:
        for target, anchor in LINK.findall(page.read_text("utf-8")):
            path = (page.parent / target).resolve() if target else page
            if not path.exists() or (anchor and anchor not in headings(path)):
                broken.append((page.name, target, anchor))
    assert broken == []


def cut_tables_and_gaps(text: str) -> list[str]:
    """Returns where a table lacks its head, as a blank line cuts it, and where two lines are blank.

    Blocks of code are left out.
    """
    lines = re.sub(r"^```.*?^```", "code", text, flags=re.MULTILINE | re.DOTALL).splitlines()
    rules = re.compile(r"\|[\s:|-]+\|")
    found = []
    for before, line, after in zip(["", *lines], lines, [*lines[1:], "end"], strict=False):
        if line.startswith("|") and not before.startswith("|") and not rules.fullmatch(after):
            found.append(f"table without a head: {line}")
        if not line and not before and after:
            found.append(f"gap before: {after}")
    return found


def test_tables_are_whole_and_no_page_has_a_gap():
    found = {page.name: cut_tables_and_gaps("start\n" + page.read_text("utf-8")) for page in PAGES}
    assert {name: faults for name, faults in found.items() if faults} == {}


def test_a_cut_table_and_a_gap_are_found():
    assert cut_tables_and_gaps("a\n\n| x |\n| --- |\n| 1 |\n\nb\n") == []
    assert len(cut_tables_and_gaps("| x |\n| --- |\n| 1 |\n\n| 2 |\n\n\nb\n")) == 2


def test_the_manual_stays_short():
    manual = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    assert sum(len(page.read_text("utf-8").split()) for page in manual) <= MOST_WORDS
    assert len(manual[0].read_text("utf-8").splitlines()) <= MOST_README_LINES


def commands(text: str) -> list[tuple[str, list[str]]]:
    """Returns the module and the arguments of each of our commands in blocks of shell."""
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    found = []
    for line in "".join(blocks).replace("\\\n", " ").splitlines():
        if match := COMMAND.search(line):
            module, ours, name, arguments = match.groups()
            found.append((COMMANDS[name][0] if ours else module, shlex.split(arguments, True)))
    return found


PRINTED = [
    pytest.param(module, argv, id=f"{page.name}: {module} {' '.join(argv)}")
    for page in PAGES
    for module, argv in commands(page.read_text("utf-8"))
    # Flags of an evaluation of digits depend on the run.
    if module not in ("http.server", "digits.evaluate", "benchmarks.run", "benchmarks.estimators")
]


@pytest.mark.parametrize(("module", "argv"), PRINTED)
def test_commands_are_understood_as_printed(module, argv, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("BOXES", "predictions.npz", "theirs.json"):  # looked for before a command starts
        Path(name).touch()
    if (ROOT / module.replace(".", "/")).is_dir():
        module += ".__main__"
    # `training.caption` is the command of captions.
    command = sys.modules[importlib.import_module(module).main.__module__]
    asked = []
    for name in {"run", "evaluate_captions"} & set(vars(command)):
        monkeypatch.setattr(command, name, lambda *arguments: asked.append(arguments))
    assert not command.main(argv)
    assert asked


def test_a_flag_that_does_not_exist_is_found(tmp_path, monkeypatch):
    ((module, argv),) = commands("```sh\nsat-tf evaluate --run-dir RUN \\\n  --no-such 1  # x\n```")
    assert (module, argv) == ("training.evaluate", ["--run-dir", "RUN", "--no-such", "1"])
    with pytest.raises(SystemExit):
        test_commands_are_understood_as_printed(module, argv, tmp_path, monkeypatch)


def test_files_commands_and_settings_that_the_pages_name_exist():
    groups = {field.name: field.default_factory for field in dataclasses.fields(RunConfig)}
    missing = []
    for page in PAGES:
        text = page.read_text("utf-8")
        missing += [path for path in PATH.findall(text) if not (ROOT / path).exists()]
        missing += [name for name in MODULE.findall(text) if not find_spec(name.rstrip("."))]
        for group, key in KEY.findall(text) if page.name not in OTHERS else ():
            if not hasattr(groups[group](), key.replace("-", "_")):
                missing.append(f"{group}.{key}")
    assert missing == []


@pytest.mark.slow
def test_the_site_has_every_page_the_api_and_what_its_links_lead_to(site):
    pages = [*(ROOT / "docs").glob("*.md")]
    for page in pages:
        assert (site / page.relative_to(ROOT / "docs").with_suffix(".html")).is_file()
    objectives = (site / "api" / "objectives.html").read_text("utf-8")
    assert 'id="sat_tf.objectives.estimators.score_function_loss"' in objectives
    # Keras' layers take (*args, **kwargs); the site shows their arguments.
    layers = (site / "api" / "layers.html").read_text("utf-8")
    decoder = layers.split('id="sat_tf.layers.decoder.RNNDecoder"')[1]
    assert "vocabulary_size" in decoder.split("</dt>")[0]
    sidebar = re.findall(r'"toctree-l1[^>]*><a[^>]*href="([^"]+)', (site / "page.html").read_text())
    assert len(sidebar) == len(set(sidebar)) > 20
    assert "<math" in (site / "paper.html").read_text("utf-8")
    missing = set()
    for page in site.rglob("*.html"):
        text = page.read_text("utf-8")
        assert not re.search(r"<(script|link|img)[^>]* (src|href)=.https?:", text), page  # offline
        for found in re.findall(r'(?:src|href)="([^"#?]+)', text):
            if not re.match(r"[a-z]+:|//", found) and not (page.parent / unquote(found)).exists():
                missing.add((page.name, found))
    assert missing == set()
