"""The page as a folder for any static host: captioners that run in the visitor's browser.

index.html, page.json        the page, and what it shows
offline.js                   keeps it for the time without a network
assets/ samples/ litert/     its scripts, its samples with their captions, LiteRT's runtime
models/                      packed graphs and words, each named by its content; cards
NOTICES.md                   whose work is in it
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.metadata
import io
import json
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from digits import hand_over
from sat_tf.config import SearchFlags
from sat_tf.errors import invalid_value
from sat_tf.files import sync
from sat_tf.images import MAX_PIXELS
from sat_tf.images.pillow import read_pixels
from sat_tf.joining import has_closed
from sat_tf.packing import pack_graph
from sat_tf.trained import published, viewer
from sat_tf.trained.lite.captioner import LiteRTCaptioner
from serving.web import sources
from serving.web.captioning import read_upload, viewer_data

if TYPE_CHECKING:
    from sat_tf.config import SearchConfig
    from sat_tf.trained.runs import TrainedCaptioner

RUNTIME = "@litertjs/core@2.5.3"
"""The npm package with LiteRT for browsers."""
RUNTIME_SHA256 = "a97660833e9e7e1063c95e12016718881240b14f7438728a2f62785e912d30fd"
"""Digest of its archive, `litertjs-core-2.5.3.tgz`."""

_AS_TRAINED = SearchFlags()
_NPM_SECONDS = 60
_SCRIPTS = ("page.css", "page.js", "local.js", "worker.js", "captioner.js", "limits.js")
_SCRIPTS += ("litert.js", "packed.js", "pixels.js", "search.js", "sentence.js")
_BUILDS = ("litert_wasm_internal", "litert_wasm_compat_internal")  # with relaxed SIMD and without
# No host needs to send it: nothing but the site's own files runs or is fetched.
_POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; "
    "connect-src 'self'; worker-src 'self'; img-src 'self' blob: data:; media-src blob:; "
    "base-uri 'none'; form-action 'none'"
)
_NOTICES = """# Notices

`index.html`, `offline.js`, `assets/` and the captioners in `models/`: sat_tf, MIT licence; a card
beside each captioner says what it learned from.

`litert/`: {runtime} from npm, Copyright Google LLC, Apache License 2.0, unchanged but for one
import in `index.js` and for compression. The package has no licence file; this is the one of
ai-edge-litert, the same runtime for Python:

```
{licence}
```

{samples}"""


def write_site(
    out: Path,
    run_dirs: Sequence[str | Path],
    runtime: Path | None = None,
    search: SearchFlags = _AS_TRAINED,
    precision: str = "float32",
    inference: str | None = None,
) -> Path:
    """Writes captioners as a page without a server, whole or not at all.

    Args:
        out: The folder; one that this function wrote before is replaced.
        run_dirs: Captioners side by side, see `sat_tf.load`; digit models get a page of their own.
        runtime: Archive of `RUNTIME`; None takes it from npm.
        search: Settings of the search, baked in.
        precision: Of the weights.
        inference: Choice of a location by hard attention; None takes the captioner's.

    Returns:
        `out`.

    Raises:
        ValueError: The runtime is missing or another one, LiteRT cannot hold a captioner, or the
            folder holds something else.
        OSError: It cannot be written.
    """
    out = out.absolute()
    if out.exists() and not (out / "page.json").is_file() and (out.is_file() or any(out.iterdir())):
        raise invalid_value("out", "a new folder, or one with such a page", str(out))
    library = read_runtime(runtime)
    drawn = [published.locate(run) for run in run_dirs if hand_over.takes(run)]
    runs = sources.named([run for run in map(published.locate, run_dirs) if run not in drawn])
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".writing-") as home:
        draft = Path(home) / "site"
        for name, content in _runtime_files(library).items():
            _write(draft / "litert" / name, content)
        shown, light = [], []
        for name, run in runs.items():
            captioner = _load(run, inference)
            light.append(
                _make(Path(home), name, captioner, search.over(captioner.config.search), precision)
            )
            shown.append(_add(draft, name, captioner, light[-1], precision))
        views = [hand_over.site(drawn, draft)] if drawn else []
        _add_page(draft, shown, list(runs.values()), views, light)
        _replace(draft, out, Path(home))
    return out


def read_runtime(archive: Path | None) -> bytes:
    """Returns the archive of `RUNTIME`, checked.

    Raises:
        ValueError: It is missing or another one.
    """
    ways = f"install npm, or give the file that `npm pack {RUNTIME}` wrote to `--runtime`"
    if archive is not None:
        try:
            content = archive.read_bytes()
        except OSError as error:
            raise invalid_value(
                "runtime", f"the archive of {RUNTIME}", f"{archive}: {error}"
            ) from error
    elif npm := shutil.which("npm"):
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
                raise ValueError(
                    f"npm does not give LiteRT's runtime for browsers ({why}): {ways}."
                )
            content = found[0].read_bytes()
    else:
        raise ValueError(f"The page needs LiteRT's runtime for browsers: {ways}.")
    if (got := _sha256(content)) != RUNTIME_SHA256:
        expected = f"the archive of {RUNTIME}, SHA-256 {RUNTIME_SHA256}"
        raise invalid_value("runtime", expected, f"{archive or RUNTIME}, SHA-256 {got}")
    return content


def _runtime_files(archive: bytes) -> dict[str, bytes]:
    """Returns the runtime's files, WebAssembly compressed, and its other package left out."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        read = {name: packed.extractfile(f"package/{name}").read() for name in _members()}
    files = {Path(name).name: content for name, content in read.items()}
    for build in _BUILDS:
        files[f"{build}.wasm.gz"] = gzip.compress(files.pop(f"{build}.wasm"), 9, mtime=0)
    own = files["index.js"].replace(b'"@litertjs/wasm-utils"', b'"../assets/litert.js"')
    return files | {"index.js": own}


def _members() -> list[str]:
    return [
        "dist/index.js",
        *(f"wasm/{build}.{end}" for build in _BUILDS for end in ("js", "wasm")),
    ]


def _load(run: Path, inference: str | None) -> TrainedCaptioner:
    from sat_tf.trained.runs import load_captioner

    captioner = load_captioner(run)
    if inference is not None and captioner.config.attention.kind == "hard":
        captioner.set_inference(inference)
    return captioner


def _make(
    home: Path, name: str, captioner: TrainedCaptioner, search: SearchConfig, precision: str
) -> LiteRTCaptioner:
    """Makes the graphs of a captioner in a folder; those with the same encoder share its graph."""
    from sat_tf.trained.lite.graphs import encoder_name, write_graphs
    from serving.limits import known_limits

    folder = home / name
    folder.mkdir()
    write_graphs(folder, captioner, search, precision, home / encoder_name(captioner, precision))
    light = LiteRTCaptioner(folder)
    light.limits = known_limits(captioner.limits, search)
    return light


def _add(
    draft: Path, name: str, captioner: TrainedCaptioner, light: LiteRTCaptioner, precision: str
) -> dict[str, Any]:
    """Adds a captioner by its graphs; returns what its page knows of it."""
    from serving.model_card import write_site_card

    words, settings, limits = light.vocabulary, light.settings, light.limits
    between, pattern, by = words.joining()
    vocabulary = {
        "forms": words.forms,
        "closed": [i for i, form in enumerate(words.forms) if has_closed(form[:1])],
        "join": {"between": between, "pattern": pattern, "by": by.replace("\\", "$")},
    }
    graphs = {Path(graph).stem: path for graph, path in settings.files(light.folder).items()}
    found = {
        "name": name,
        "kind": captioner.config.attention.kind,
        "lang": words.language or None,
        "graphs": {
            stem: _named(draft, stem, pack_graph(graph), "npz") for stem, graph in graphs.items()
        },
        "vocabulary": _named(draft, "vocabulary", json.dumps(vocabulary).encode(), "json"),
        "familiarity": None,
        "confidence": None,
        "image_size": settings.image_size,
        "resize": settings.resize,
        "grid": settings.grid,
        **asdict(settings.search),
        "forbidden": settings.search.forbidden,
    }
    if limits.familiarity is not None:
        found["familiarity"] = _named(draft, "familiarity", limits.familiarity.content(), "json")
    if limits.confidence is not None:
        found["confidence"] = {key: getattr(limits.confidence, key) for key in ("bias", "slopes")}
    write_site_card(draft / "models" / f"{name}.md", captioner, settings.search, precision)
    return found


def _named(draft: Path, stem: str, content: bytes, ending: str) -> str:
    """Writes a file named by its content; returns its path in the site."""
    path = f"models/{stem}-{_sha256(content)[:16]}.{ending}"
    _write(draft / path, content)
    return path


def _add_page(
    draft: Path,
    shown: Sequence[Mapping[str, Any]],
    runs: Sequence[Path],
    views: Sequence[Mapping[str, str]],
    light: Sequence[LiteRTCaptioner],
) -> None:
    """Adds the page around captioners, digit models and the runtime, which are there."""
    own = resources.files(__package__)
    for name in _SCRIPTS:
        _write(draft / "assets" / name, (own / name).read_bytes())
    for name in ("viewer.css", "viewer.js"):
        _write(draft / "assets" / name, viewer.asset(name).encode())
    _write(draft / "offline.js", (own / "offline.js").read_bytes())
    html = (own / "page.html").read_text("utf-8").replace("assets/ask.js", "assets/local.js")
    if shown or not views:
        _write(draft / "index.html", html.encode())
    else:
        shutil.copyfile(draft / views[0]["path"], draft / "index.html")
    policy = f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    for path in draft.glob("*.html"):
        _write(path, path.read_text("utf-8").replace("<head>", f"<head>\n{policy}").encode())
    samples = json.loads((own / "samples" / "samples.json").read_text("utf-8"))
    for sample in samples:
        content = (own / "samples" / sample["file"]).read_bytes()
        _write(draft / "samples" / sample["file"], content)
        answers = [_answer(one, by, content) for one, by in zip(shown, light, strict=True)]
        text = json.dumps(answers, ensure_ascii=False, separators=(",", ":"))
        _write(draft / "samples" / f"{sample['file']}.json", text.encode())
    licence = importlib.metadata.distribution("ai-edge-litert").read_text("licenses/LICENSE")
    sources_of_samples = (own / "samples" / "SOURCES.md").read_text("utf-8")
    notices = _NOTICES.format(runtime=RUNTIME, licence=licence, samples=sources_of_samples)
    _write(draft / "NOTICES.md", notices.encode())
    checked = [path for path in sorted(draft.rglob("*")) if path.suffix in (".npz", ".json", ".gz")]
    files = {
        path.relative_to(draft).as_posix(): {
            "size": path.stat().st_size,
            "sha256": _sha256(path.read_bytes()),
        }
        for path in checked
        if path.parent.name in ("models", "litert")
    }
    page = {
        "models": [one["name"] for one in shown],
        "kinds": [one["kind"] for one in shown],
        "lang": None,
        "notes": sources.notes_of(runs),
        "about": list(dict.fromkeys(filter(None, map(published.knows, runs)))),
        "views": views,
        "samples": samples,
        "captioners": shown,
        "files": files,
        "download": sum(files[path]["size"] for path in _downloaded(shown)),
        "most_pixels": MAX_PIXELS,
    }
    light_files = [
        path
        for path in sorted(draft.rglob("*"))
        if path.is_file() and path.parent.name != "models" and path.suffix not in (".gz", ".md")
    ]
    page["shell"] = [path.relative_to(draft).as_posix() for path in light_files] + ["page.json"]
    page["version"] = _sha256(
        b"".join(path.read_bytes() for path in light_files) + json.dumps(page).encode()
    )[:16]
    _write(draft / "page.json", json.dumps(page, ensure_ascii=False).encode())


def _downloaded(shown: Sequence[Mapping[str, Any]]) -> set[str]:
    """Returns the files that a visitor downloads before the first caption."""
    paths = {path for one in shown for path in (*one["graphs"].values(), one["vocabulary"])}
    paths |= {one["familiarity"] for one in shown} - {None}
    return paths | {f"litert/{_BUILDS[0]}.wasm.gz"}


def _answer(one: Mapping[str, Any], light: LiteRTCaptioner, content: bytes) -> dict[str, Any]:
    """Captions a sample by the graphs, as the page shows it."""
    pixels = read_pixels(content, light.settings.image_size, light.settings.resize)
    found = viewer_data(read_upload(content), light.beam(pixels), one["kind"], one["resize"])
    return {"model": one["name"]} | found


def _replace(draft: Path, out: Path, home: Path) -> None:
    """Gives a finished site its place by a rename, readable by all and synced to disk."""
    for path in (*draft.rglob("*"), draft):
        path.chmod(0o755 if path.is_dir() else 0o644)
        sync(path)
    if out.exists():
        out.rename(home / "before")
    draft.rename(out)
    sync(out.parent)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
