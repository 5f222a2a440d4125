"""The picture of the package's rooms and the imports between them, which `python scripts/regenerate.py` writes.

Rooms and floors are those that `tests/test_architecture.py` measures. Arrows to the two lowest floors, which nearly
every room has, would hide all others and are left out.
"""

from __future__ import annotations

import ast
import importlib.util
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "lightning_rl"
WIDTH, ROW, BOX, HEIGHT = 1080, 96, 230, 54
LOW = 2  # floors without arrows to them


def architecture() -> Any:
    """The module `tests/test_architecture.py`, which knows floors and imports."""
    spec = importlib.util.spec_from_file_location("test_architecture", ROOT / "tests" / "test_architecture.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def first_line(room: str) -> str:
    """The first clause of what a room's docstring says."""
    module = ast.parse((PACKAGE / room / "__init__.py").read_text(encoding="utf-8"))
    return (ast.get_docstring(module) or "").splitlines()[0].rstrip(".").split(":")[0]


def picture() -> str:
    """The SVG: a row of rooms for each floor, the highest above; arrows lead from a room to those that it imports."""
    rules = architecture()
    floors = {room: rules.floor(room) for room in sorted(rules.arrows())}
    rooms = [room for room, floor in floors.items() if floor > LOW]
    arrows = {(own, target) for own in rooms for target in rules.arrows()[own] if target in rooms}
    top = max(floors.values())
    places: dict[str, tuple[float, float]] = {}
    for floor in range(LOW + 1, top + 1):
        row = [room for room in rooms if floors[room] == floor]
        for index, room in enumerate(row):
            places[room] = (WIDTH * (index + 1) / (len(row) + 1), 20 + ROW * (top - floor))
    parts = []
    for own, target in sorted(arrows):
        (x0, y0), (x1, y1) = places[own], places[target]
        if y0 == y1:
            parts.append(f'<path d="M{x0:.0f} {y0 + HEIGHT / 2:.0f} H{x1:.0f}" class="arrow"/>')
        else:
            far = " far" if y1 - y0 > ROW else ""
            parts.append(f'<path d="M{x0:.0f} {y0 + HEIGHT:.0f} L{x1:.0f} {y1 - 3:.0f}" class="arrow{far}"/>')
    for room, (x, y) in places.items():
        words = escape(first_line(room))
        words = words if len(words) <= 44 else words[:43].rsplit(" ", 1)[0] + " …"
        parts.append(
            f'<rect x="{x - BOX / 2:.0f}" y="{y:.0f}" width="{BOX}" height="{HEIGHT}" rx="6"/>'
            f'<text x="{x:.0f}" y="{y + 22:.0f}" class="room">{room}</text>'
            f'<text x="{x:.0f}" y="{y + 41:.0f}" class="words">{words}</text>'
        )
    for floor in range(LOW, 0, -1):
        y = 20 + ROW * (top - floor)
        names = " · ".join(name for name, at in floors.items() if at == floor)
        parts.append(f'<rect x="20" y="{y}" width="{WIDTH - 40}" height="{HEIGHT}" rx="6"/>')
        parts.append(f'<text x="{WIDTH / 2:.0f}" y="{y + 32}" class="room">{names}</text>')
    style = (
        "rect{fill:#f6f8fa;stroke:#57606a} .room{font:600 14px monospace;text-anchor:middle;fill:#24292f}"
        ".words{font:9px sans-serif;text-anchor:middle;fill:#57606a}"
        ".arrow{stroke:#0969da;stroke-opacity:.6;fill:none;marker-end:url(#head)} .far{stroke-opacity:.2}"
    )
    head = (
        '<marker id="head" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#0969da" fill-opacity=".6"/></marker>'
    )
    height = y + HEIGHT + 20
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-size="12">'
        f'<rect width="{WIDTH}" height="{height}" style="fill:#fff;stroke:none"/>'
        f"<style>{style}</style><defs>{head}</defs>\n" + "\n".join(parts) + "\n</svg>\n"
    )
