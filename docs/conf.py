"""Sphinx builds the pages of this folder: `sphinx-build -W -b html docs docs/_build/html` (`pip install -e '.[docs]'`).

Pages are plain Markdown that reads on a Git host as well. The pages in `CONTENTS` are lists of links, and the site's
navigation is made of these lists: a new page is one line in `index.md`, which begins like the README. The pages below
`reference/` are written from the package at each build, and are in no repository. tests/test_site.py checks the links
between pages; `-b linkcheck` tries those that leave the site.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util.inspect import stringify_signature

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))

from lightning_rl import __version__  # noqa: E402
from scripts.reference_pages import write_pages  # noqa: E402

project = "lightning_rl"
author = "The lightning_rl authors"
copyright = author
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "lightning_rl"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_copyright = False
html_copy_source = False
pygments_style, pygments_dark_style = "friendly", "monokai"

myst_heading_anchors = 4
myst_enable_extensions = ["deflist"]

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the descriptions say what matters: shapes, units, ranges
autodoc_class_signature = "mixed"
napoleon_google_docstring, napoleon_numpy_docstring = True, False
napoleon_use_ivar = True
python_maximum_signature_line_length = 88

linkcheck_timeout = 20

CONTENTS = ("index", "algorithms")
REST = "Guides"  # pages that no list names are guides
WRITTEN = {"api": "api_", "configuration": "config_"}  # page → the pages below reference/ that it shows a list of
LINK = re.compile(r"^(?:- |\| )\[[^\]]*\]\(([\w/]+)\.md\)", re.MULTILINE)


def toctree(pages: list[str], *options: str) -> str:
    """A list of pages, for the navigation."""
    return "\n".join(["", "```{toctree}", *options, "", *pages, "```", ""])


def add_navigation(app: Sphinx, page: str, source: list[str]) -> None:
    """Put the pages that a page of contents links to into the navigation, under the headings there."""
    if page in WRITTEN:
        source[0] += toctree([f"reference/{name}" for name in app.written if name.startswith(WRITTEN[page])])
    if page not in CONTENTS:
        return
    parts = re.split(r"^## (.*)$", source[0], flags=re.MULTILINE)
    texts = dict(zip(parts[1::2], parts[2::2], strict=True))
    sections = {title: LINK.findall(text) for title, text in texts.items()}
    if page == "index":
        lists = "".join((DOCS / f"{name}.md").read_text(encoding="utf-8") for name in CONTENTS)
        named = set(LINK.findall(lists)) | {page}
        sections[REST] += sorted(name for name in app.env.found_docs - named if not name.startswith("reference/"))
    source[0] += "".join(toctree(pages, ":hidden:", f":caption: {title}") for title, pages in sections.items() if pages)


def escape_formulas(app: Sphinx, kind: str, name: str, target: object, options: object, lines: list[str]) -> None:
    """Docstrings are plain text with `code`: what stands outside of code is no markup, |δ| and π* for instance."""
    parts = re.split(r"(`[^`]*`)", "\n".join(lines))
    code = [f"`{re.sub(chr(10) + ' *', ' ', part)}`" for part in parts[1::2]]  # ``code``
    plain = [re.sub(r"([|*]|_\b)", r"\\\1", part) for part in parts[::2]]
    plain[1:] = [re.sub(r"^(?=\w)", r"\\ ", part) for part in plain[1:]]  # `code`s
    parts[::2], parts[1::2] = plain, code
    lines[:] = "".join(parts).split("\n")


def constructor_signature(
    app: Sphinx, kind: str, name: str, target: object, options: object, signature: str | None, returns: str | None
) -> tuple[str | None, str | None] | None:
    """Show the keywords of a class whose `__new__` takes anything."""
    if kind == "class" and signature == "(*args, **kwargs)":
        _, *parameters = inspect.signature(target.__init__).parameters.values()
        return stringify_signature(inspect.Signature(parameters), show_annotation=False), None
    return None


def setup(app: Sphinx) -> None:
    """Sphinx calls this before it reads pages."""
    app.written = write_pages(DOCS / "reference")
    app.connect("source-read", add_navigation)
    app.connect("autodoc-process-signature", constructor_signature)
    app.connect("autodoc-process-docstring", escape_formulas, priority=400)  # before napoleon, which writes markup
