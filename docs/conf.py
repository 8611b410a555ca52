"""Configuration of the site: `make docs` builds it from these pages into build/docs."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

from docutils.nodes import Element, SkipNode
from latex2mathml.converter import convert
from pygments.lexers.special import TextLexer
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util.inspect import signature, stringify_signature
from sphinx.writers.html5 import HTML5Translator

_DOCS = Path(__file__).resolve().parent
_ROOT = _DOCS.parent
sys.path.insert(0, str(_ROOT))

# Autodoc imports TensorFlow.
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

project = "sat_tf"
author = "The sat_tf authors"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

html_theme = "furo"
html_title = "sat_tf"
html_copy_source = False
html_math_renderer = "mathml"

# Anchors of headings as GitHub makes them, so that links work there and here.
myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]
exclude_patterns = ["notebooks/*/**"]  # what the notebooks leave
nb_execution_mode = "off"  # `make docs` executes the notebooks, and so does a slow test
nb_execution_timeout = 600  # seconds per cell
nb_execution_raise_on_error = True
nb_execution_in_temp = True  # or photographs, runs and captions are left in docs/

default_role = "code"  # docstrings mark code with single backticks
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_default_options = {"members": True}
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # fields of dataclasses are described once
napoleon_custom_sections = [("Call arguments", "params_style"), ("Output", "returns_style")]

# The static page in the folder `live`, which `make docs` adds to docs/page.md, as it takes minutes.
_LIVE, _LIVE_CAPTIONERS = "live", ("photos_soft", "flickr8k_soft", "flickr8k_hard")
_LIVE_DIGITS = ("ram_28", "dram_pairs", "stn_rts")
_LIVE_FRAME = """
```{raw} html
<p><a href="live/index.html">Open it by itself</a></p>
<iframe src="live/index.html" title="The page" width="100%" height="900" frameborder="0"></iframe>
```
"""

# Files beside docs/ that a page of the site includes.
_PAGES = {
    "README.md": "index",
    "CONTRIBUTING.md": "project/contributing",
    "CHANGELOG.md": "project/changelog",
}


class RootLinks(SphinxTransform):
    """Leads links to files next to docs/ to the pages that include them, or to the files."""

    default_priority = 5

    def apply(self, **kwargs) -> None:
        """Changes such links of one page, which MyST resolves later."""
        for link in self.document.findall(addnodes.pending_xref):
            if link["reftype"] != "myst":
                continue
            if link["refdomain"] is None:  # of an included file: no file from where it is included
                path, _, anchor = link["reftarget"].partition("#")
                if path in _PAGES:
                    link.attributes |= {"refdomain": "doc", "reftargetid": anchor or None}
                    link["reftarget"] = _PAGES[path]
                elif (_ROOT / path).is_file():
                    _download(link, _ROOT / path)
            elif link["refdomain"] == "doc":  # MyST leaves out the suffix
                path = _DOCS / (link["reftarget"] + ".md")
                path = Path(os.path.normpath(path))
                if path.parent == _ROOT and path.name in _PAGES:
                    link["reftarget"] = _PAGES[path.name]
                elif not path.is_relative_to(_DOCS) and path.is_file():
                    _download(link, path)


def _download(link: addnodes.pending_xref, path: Path) -> None:
    """Replaces a link by one to a copy of a file that is not a page, such as an experiment."""
    target = f"/{os.path.relpath(path, _DOCS)}"
    copy = addnodes.download_reference("", "", *link.children, reftarget=target, refdoc="")
    link.replace_self(copy)


def _mathml(display: str) -> tuple[Callable, None]:
    """Returns a visitor that draws equations as browsers do by themselves, without a network."""

    def visit(translator: HTML5Translator, node: Element) -> None:
        translator.body.append(convert(node.astext(), display=display))
        raise SkipNode

    return visit, None


def _skip_aliases(app, what, name, obj, skip, options) -> bool | None:
    """Skips fields of named tuples that the class describes."""
    return True if (obj.__doc__ or "").startswith("Alias for field number") else None


def _prepare_docstring(app, what, name, obj, options, lines: list[str]) -> None:
    """Marks the flags of a command as code, lest their dashes be typeset."""
    spans = re.compile(r"`[^`]*`|(--[a-z][\w.-]*\w)")
    lines[:] = spans.sub(lambda m: f"`{m[1]}`" if m[1] else m[0], "\n".join(lines)).split("\n")
    if what == "attribute":
        # Napoleon would take a first line up to its colon for a type; this one renders as nothing.
        lines.insert(0, "\\")


def _init_signature(app, what, name, obj, options, text, returns) -> tuple[str, None] | None:
    """Shows the arguments of a layer: Keras gives every layer a `__new__` that takes anything."""
    if what != "class" or text != "(*args, **kwargs)":
        return None
    found = signature(obj.__init__, bound_method=True)
    return stringify_signature(found, show_annotation=False), None


def _write_live_page(app: Sphinx) -> None:
    """Writes the live page into the site if a runtime for browsers can be had."""
    app.config.live_page = app.config.live_page and app.builder.format == "html"
    if not app.config.live_page:
        return
    from serving.export_web import write_site

    try:
        write_site(Path(app.outdir, _LIVE), _LIVE_CAPTIONERS, _LIVE_DIGITS)
    except ValueError as error:
        app.config.live_page = False
        print(f"The site has no live page. {error}")


def _show_live_page(app: Sphinx, name: str, source: list[str]) -> None:
    if name == "page" and app.config.live_page:
        source[0] += _LIVE_FRAME


def setup(app: Sphinx) -> None:
    """Registers the transform and the hooks, and CSV as plain text."""
    app.add_config_value("live_page", False, "env", types=bool)
    app.connect("builder-inited", _write_live_page)
    app.connect("source-read", _show_live_page)
    app.add_transform(RootLinks)
    app.add_html_math_renderer("mathml", _mathml("inline"), _mathml("block"))
    app.connect("autodoc-process-docstring", _prepare_docstring, priority=400)
    app.connect("autodoc-skip-member", _skip_aliases)
    app.connect("autodoc-process-signature", _init_signature)
    app.add_lexer("csv", TextLexer)
