"""Export captioners as a static page: `python -m serving.export_web --run-dir RUN ...`.

The captioners run in the visitor's browser, over their LiteRT graphs. The folder suits any static
host:

index.html, page.json        the page, and its contents
offline.js                   keeps it for the time without a network
assets/ samples/ litert/     its scripts, its samples with their captions, LiteRT's runtime
models/                      packed graphs and words, each named by content; cards
NOTICES.md                   notices of others' work
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.metadata
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from digits import page as digits_page
from digits import published_folder
from sat_tf.images import MAX_PIXELS
from sat_tf.images.pillow import decode
from sat_tf.inference import published, viewer
from sat_tf.inference.litert_captioner import LiteRTCaptioner, graph_files
from sat_tf.inference.load import load
from sat_tf.inference.packing import pack_graph
from sat_tf.util.commands import exit_status, parse_flags
from sat_tf.util.errors import invalid_value
from sat_tf.util.files import sync
from serving.versions import make_durable
from serving.web.captions import OWN, facts_of, named, samples_of, viewer_data

RUNTIME = "@litertjs/core@2.5.3"
"""The npm package with LiteRT for browsers."""
RUNTIME_SHA256 = "a97660833e9e7e1063c95e12016718881240b14f7438728a2f62785e912d30fd"
"""Digest of its archive, `litertjs-core-2.5.3.tgz`."""

_NPM_SECONDS = 60
_APART = ("ask.js", "offline.js")  # of a server's page, and beside index.html
_BUILDS = ("litert_wasm_internal", "litert_wasm_compat_internal")  # with relaxed SIMD and without
_ENDINGS = ("js", "wasm")
# No host needs to send it: nothing but the site's own files runs or is fetched.
_POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; "
    "connect-src 'self'; worker-src 'self'; img-src 'self' blob: data:; "
    "base-uri 'none'; form-action 'none'"
)
_NOTICES = """# Notices

`index.html`, `offline.js`, `assets/` and the captioners in `models/`: sat_tf, MIT licence; a card
next to each captioner names its training data.

`litert/`: {runtime} from npm, Copyright Google LLC, Apache License 2.0, unchanged but for one
import in `index.js` and for compression. The package has no licence file; this is the one of
ai-edge-litert, the same runtime for Python:

```
{licence}
```

{samples}"""


@dataclass(frozen=True)
class Arguments:
    """Write captioners as a page that captions in the visitor's browser."""

    run_dir: tuple[Path, ...] = ()
    """Run folders, published captioners' folders or names, side by side."""
    digits: tuple[Path, ...] = ()
    """Published digit models for a second view, by folder or name."""
    out: Path | None = None
    """Folder of the page; `web` in the first captioner's folder by default."""
    runtime: Path | None = None
    """Archive of @litertjs/core; by default npm downloads it."""


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    arguments = parse_flags(Arguments, argv, "serving.export_web")
    return exit_status(lambda: run(arguments))


def run(arguments: Arguments) -> None:
    """Writes the page, prints where it is."""
    first = next(iter(arguments.run_dir or arguments.digits), None)
    if first is None:
        raise invalid_value("run_dir", "at least one captioner", "none", flag="--run-dir")
    out = arguments.out or published.output_dir(first) / "web"
    write_site(out, arguments.run_dir, arguments.digits, arguments.runtime)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    print(f"Wrote {out}, {size / 1e6:.1f} MB. Put it on any static host; to try it here:")
    print(f"  python -m http.server --bind 127.0.0.1 --directory {out}")


def write_site(
    out: Path,
    runs: Sequence[str | Path],
    digits: Sequence[str | Path] = (),
    runtime: Path | None = None,
) -> Path:
    """Writes captioners as a page without a server, whole or not at all.

    Args:
        out: The folder; one that this function wrote before is replaced.
        runs: Captioners side by side, see `sat_tf.load`.
        digits: Published digit models of a page for digits.
        runtime: Archive of `RUNTIME`; None takes it from npm.

    Returns:
        `out`.

    Raises:
        RunError: A captioner has no graphs.
        ValueError: The runtime is missing or another one, or the folder holds something else.
        OSError: It cannot be written.
    """
    out = out.absolute()
    if out.exists() and not (out / "page.json").is_file() and (out.is_file() or any(out.iterdir())):
        raise invalid_value("out", "a new folder, or one with such a page", str(out), flag="--out")
    library = read_runtime(runtime)
    drawn = named([published_folder(name) for name in digits])
    folders = named(list(map(published.locate, runs)))
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".writing-") as home:
        draft = Path(home, "site")
        _add_runtime(draft / "litert", library)
        captioners = {name: load(folder, "litert") for name, folder in folders.items()}
        shown = [_add(draft, name, captioner) for name, captioner in captioners.items()]
        views = [digits_page.add_to_site(drawn, draft)] if drawn else []
        _add_page(draft, shown, views)
        page = facts_of(folders) | {
            "views": views,
            "samples": _add_samples(draft / "samples", folders, captioners),
            "captioners": shown,
            "most_pixels": MAX_PIXELS,
        }
        _add_contents(draft, page)
        make_durable(draft)
        if out.exists():
            out.rename(Path(home) / "before")
        draft.rename(out)
        sync(out.parent)
    return out


def read_runtime(archive: Path | None) -> bytes:
    """Returns the archive of `RUNTIME`, checked.

    Raises:
        ValueError: It is missing or another one.
    """
    try:
        content = _ask_npm() if archive is None else archive.read_bytes()
    except OSError as error:
        expected = f"the archive of {RUNTIME}"
        raise invalid_value("runtime", expected, f"{archive}: {error}") from error
    if (got := _sha256(content)) != RUNTIME_SHA256:
        expected = f"the archive of {RUNTIME}, SHA-256 {RUNTIME_SHA256}"
        raise invalid_value("runtime", expected, f"{archive or RUNTIME}, SHA-256 {got}")
    return content


def _ask_npm() -> bytes:
    """Downloads the archive of `RUNTIME`."""
    ways = f"install npm, or give the file that `npm pack {RUNTIME}` wrote to `--runtime`"
    npm = shutil.which("npm")
    if npm is None:
        raise ValueError(f"The page needs LiteRT's runtime for browsers: {ways}.")
    with tempfile.TemporaryDirectory() as folder:
        command = [npm, "pack", RUNTIME, "--silent", "--pack-destination", folder]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, cwd=folder, timeout=_NPM_SECONDS
            )
            why = " ".join(done.stderr.split())[:200] or f"it ended with {done.returncode}"
        except subprocess.TimeoutExpired:
            why = f"no answer within {_NPM_SECONDS} s"
        found = list(Path(folder).glob("*.tgz"))
        if len(found) != 1:
            raise ValueError(f"npm does not give LiteRT's runtime for browsers ({why}): {ways}.")
        return found[0].read_bytes()


def _add_runtime(folder: Path, archive: bytes) -> None:
    """Adds the runtime's files, WebAssembly compressed, and its other package left out."""
    members = ["dist/index.js", *(f"wasm/{build}.{end}" for build in _BUILDS for end in _ENDINGS)]
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        for member in members:
            name, content = Path(member).name, packed.extractfile(f"package/{member}").read()
            if name == "index.js":
                content = content.replace(b'"@litertjs/wasm-utils"', b'"../assets/litert.js"')
            if name.endswith(".wasm"):
                # Some hosts send .gz unpacked, or say that browsers are to unpack it.
                name, content = f"{name}.packed", gzip.compress(content, 9, mtime=0)
            _write(folder / name, content)


def _add(draft: Path, name: str, captioner: LiteRTCaptioner) -> dict[str, Any]:
    """Adds a captioner's graphs; returns the page's facts about it."""
    from serving.model_card import write_site_card

    words, config, limits = captioner.vocabulary, captioner.config, captioner.limits
    between, pattern, by = words.joining()
    vocabulary = {
        "forms": words.words,
        "join": {"between": between, "pattern": pattern, "by": by.replace("\\", "$")},
    }
    graphs = {}
    with tempfile.NamedTemporaryFile(suffix=".tflite") as file:
        contents = graph_files(captioner.folder).values()
        for part, content in zip(published.PARTS, contents, strict=True):
            Path(file.name).write_bytes(content)
            graphs[part] = _named(draft, part, pack_graph(Path(file.name)), "npz")
    found = {
        "name": name,
        "kind": config.attention.kind,
        "lang": words.language or None,
        "graphs": graphs,
        "vocabulary": _named(draft, "vocabulary", json.dumps(vocabulary).encode(), "json"),
        "familiarity": None,
        "confidence": None,
        "image_size": config.encoder.image_size,
        "resize": config.encoder.resize,
        "grid": captioner.grid if config.attention.kind != "none" else None,
        **asdict(config.search),
        "forbidden": config.search.forbidden,
    }
    if limits.familiarity is not None:
        found["familiarity"] = _named(draft, "familiarity", limits.familiarity.content(), "json")
    if limits.confidence is not None and limits.confidence.fits(config.search):
        found["confidence"] = {key: getattr(limits.confidence, key) for key in ("bias", "slopes")}
    write_site_card(draft / "models" / f"{name}.md", captioner)
    return found


def _named(draft: Path, stem: str, content: bytes, ending: str) -> str:
    """Writes a file named by content; returns its path in the site."""
    path = f"models/{stem}-{_sha256(content)[:16]}.{ending}"
    _write(draft / path, content)
    return path


def _add_page(
    draft: Path, shown: Sequence[Mapping[str, Any]], views: Sequence[Mapping[str, str]]
) -> None:
    """Adds the page around captioners and digit models, which are there, and the notices."""
    for folder in (viewer.FILES, OWN):
        for path in folder.iterdir():
            if path.name.endswith((".css", ".js")) and path.name not in _APART:
                _write(draft / "assets" / path.name, path.read_bytes())
    _write(draft / "offline.js", (OWN / "offline.js").read_bytes())
    html = (OWN / "page.html").read_text("utf-8").replace("assets/ask.js", "assets/local.js")
    if views and not shown:
        html = (draft / views[0]["path"]).read_text("utf-8")
    _write(draft / "index.html", html.encode())
    policy = f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    for path in draft.glob("*.html"):
        _write(path, path.read_text("utf-8").replace("<head>", f"<head>\n{policy}").encode())
    licence = importlib.metadata.distribution("ai-edge-litert").read_text("licenses/LICENSE")
    samples = (OWN / "samples" / "SOURCES.md").read_text("utf-8")
    notices = _NOTICES.format(runtime=RUNTIME, licence=licence, samples=samples)
    _write(draft / "NOTICES.md", notices.encode())


def _add_samples(
    folder: Path, runs: dict[str, Path], captioners: Mapping[str, LiteRTCaptioner]
) -> list[dict[str, str]]:
    """Adds the samples with captions from the graphs; returns the page's facts about them."""
    samples, files = samples_of(runs) if runs else ([], {})
    for name, content in files.items():
        image, answers = decode(content), []
        for model, one in captioners.items():
            config = one.config
            data = viewer_data(image, one.beam(image), config.attention.kind, config.encoder.resize)
            answers.append({"model": model} | data)
        text = json.dumps(answers, ensure_ascii=False, separators=(",", ":"))
        _write(folder / name, content)
        _write(folder / f"{name}.json", text.encode())
    return samples


def _add_contents(draft: Path, page: dict[str, Any]) -> None:
    """Adds `page.json`: the page's facts, and the files of the site, which are there."""
    paths = {
        path.relative_to(draft).as_posix(): path for path in draft.rglob("*") if path.is_file()
    }
    weights = {
        name: path
        for name, path in sorted(paths.items())
        if name.startswith(("models/", "litert/")) and path.suffix in (".npz", ".json", ".packed")
    }
    page["files"] = {
        name: {"size": path.stat().st_size, "sha256": _sha256(path.read_bytes())}
        for name, path in weights.items()
    }
    first = {f"litert/{_BUILDS[0]}.wasm.packed"}  # what is downloaded before the first caption
    for one in page["captioners"]:
        first |= {*one["graphs"].values(), one["vocabulary"], one["familiarity"]} - {None}
    page["download"] = sum(page["files"][name]["size"] for name in first)
    shell = [name for name in sorted(paths.keys() - weights) if not name.endswith(".md")]
    page["shell"] = [*shell, "page.json"]
    content = b"".join(paths[name].read_bytes() for name in shell)
    page["version"] = _sha256(content + json.dumps(page).encode())[:16]
    _write(draft / "page.json", json.dumps(page, ensure_ascii=False).encode())


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
