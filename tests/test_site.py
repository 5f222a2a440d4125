"""The documentation's site: each page is in its navigation, each internal link leads somewhere, and it builds."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote, urlsplit

import pytest

from lightning_rl.config import compose_config
from tests.run_processes import import_file

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(file for file in DOCS.rglob("*.md") if not {"_build", "reference"} & set(file.relative_to(DOCS).parts))
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def anchors_of(page: Path) -> set[str]:
    """The anchors that a Git host and the site give the headings of a page."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in HEADING.findall(text)}


def test_links_lead_to_headings_that_are_there() -> None:
    for page in (ROOT / "README.md", *PAGES):
        for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)]+)\)", page.read_text(encoding="utf-8")):
            if not target.startswith("http"):
                assert anchor in anchors_of(page.parent / target if target else page), f"{page}: {target}#{anchor}"


def test_every_curve_is_shown_on_its_page() -> None:
    for picture in (DOCS / "curves").glob("*.svg"):
        pages = (DOCS / "algorithms").glob("*.md")
        shown = [page for page in pages if f"/{picture.name}" in page.read_text(encoding="utf-8")]
        assert len(shown) == 1 and picture.name.startswith(shown[0].stem), picture.name


class Links(HTMLParser):
    """The targets of a page's links and pictures, and the names that links may lead to."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.names: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what a tag names."""
        values = {name: value for name, value in attrs if value}
        self.names |= {values[name] for name in ("id", "name") if name in values}
        self.targets += [values[name] for name in ("href", "src") if name in values]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for package in ("sphinx", "furo", "myst_parser"):
        if importlib.util.find_spec(package) is None:
            pytest.skip('the site needs the extra docs: pip install -e ".[docs]"')
    built = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-d", f"{built}/trees"]
    result = subprocess.run(
        [*command, str(DOCS), f"{built}/html"], cwd=ROOT, capture_output=True, text=True, timeout=280, check=False
    )
    assert result.returncode == 0, result.stderr
    return built / "html"


@pytest.mark.slow
def test_the_site_builds_without_warnings_and_has_all_pages(site: Path) -> None:
    index = (site / "index.html").read_text(encoding="utf-8")
    navigation = index.split('<div class="sidebar-tree">')[1].split("</aside>")[0]
    assert "reference/config_policy.html" in navigation and "reference/api_policies.html" in navigation
    for page in PAGES:
        path = page.relative_to(DOCS).with_suffix(".html")
        assert path.name == "index.html" or f'href="{path}"' in navigation, path
        title = re.match(r"# ([\w ]+)", page.read_text(encoding="utf-8"))  # None where another file is included
        assert title is None or f"<h1>{title[1]}" in (site / path).read_text(encoding="utf-8"), path


@pytest.mark.slow
def test_every_link_inside_the_site_leads_somewhere(site: Path) -> None:
    found = {}
    for file in site.rglob("*.html"):
        found[file] = Links()
        found[file].feed(file.read_text(encoding="utf-8"))
    assert len(found) > len(PAGES)
    broken = []
    for file, links in found.items():
        for target in links.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            path = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            there = path.is_file() and (not parts.fragment or unquote(parts.fragment) in {"", *found[path].names})
            broken += [] if there else [f"{file.relative_to(site)}: {target}"]
    assert broken == []


@pytest.mark.slow
def test_pages_ask_no_server_for_fonts_scripts_or_styles(site: Path) -> None:
    for file in site.rglob("*.html"):
        text = file.read_text(encoding="utf-8")
        assert re.findall(r'<(?:script|img)[^>]* src="(?:https?:)?//[^"]*"', text) == [], file
        assert re.findall(r'<link[^>]* rel="stylesheet"[^>]* href="(?:https?:)?//[^"]*"', text) == [], file


@pytest.mark.slow
def test_the_config_pages_have_the_keys_and_values_of_conf(site: Path) -> None:
    page = (site / "reference" / "config_workers.html").read_text(encoding="utf-8")
    for key, value in compose_config(["experiment=none"])["workers"].items():
        shown = {"None": "null", "True": "true", "False": "false"}.get(str(value), str(value))
        row = re.search(rf"<tr[^>]*><td><p><code[^>]*><span class=\"pre\">{key}</span>.*?</tr>", page, re.DOTALL)
        assert row is not None and f">{shown}</span>" in row[0], key


def test_pages_that_no_list_names_are_guides() -> None:
    """Adding a page takes no line; a line in index.md says where it belongs."""
    pytest.importorskip("sphinx", reason='the site needs the extra docs: pip install -e ".[docs]"')
    conf = import_file(DOCS / "conf.py")
    names = {str(page.relative_to(DOCS).with_suffix("")) for page in PAGES} | {"zebra", "reference/config_env"}
    source = [(DOCS / "index.md").read_text(encoding="utf-8")]
    conf.add_navigation(SimpleNamespace(env=SimpleNamespace(found_docs=names)), "index", source)
    guides = source[0].split(":caption: Guides")[1].split("```")[0].split()
    assert guides[0] == "configuration" and "models" in guides and guides[-1] == "zebra"
    trees = source[0].split("```{toctree}")[1:]
    listed = [name for block in trees for name in block.split("```")[0].split("\n\n")[1].split()]
    assert len(listed) == len(set(listed)) and "algorithms/ppo" not in listed
