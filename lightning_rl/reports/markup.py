"""HTML and SVG elements as text that is escaped unless it is markup already: a run may be called `<script>`."""

from __future__ import annotations

from html import escape

__all__ = ["Markup", "element", "join"]

VOID = ("meta", "link", "img", "br")  # elements without content
WITHOUT_END = ("circle", "line", "path", "polygon", "polyline", "rect")  # SVG: drawn without content, if they have none


class Markup(str):
    """Text that is HTML or SVG, and not escaped again."""

    __slots__ = ()


def element(name: str, /, *children: str | None, **attributes: str | float | None) -> Markup:
    """An element with its children.

    Args:
        name: of the element.
        children: `Markup`, or text, which is escaped; `None` is left out.
        attributes: "_" in a name stands for "-", one at its end for nothing; `None` is left out.
    """
    parts = [
        f' {key.rstrip("_").replace("_", "-")}="{escape(shown(value))}"'
        for key, value in attributes.items()
        if value is not None
    ]
    start = f"<{name}{''.join(parts)}"
    if name in VOID:
        return Markup(f"{start}>")
    content = join(*children)
    return Markup(f"{start}/>" if name in WITHOUT_END and not content else f"{start}>{content}</{name}>")


def join(*children: str | None) -> Markup:
    """Children in a row: markup as it is, text escaped."""
    kept = (child for child in children if child is not None)
    return Markup("".join(child if isinstance(child, Markup) else escape(child) for child in kept))


def shown(value: str | float) -> str:
    """An attribute's value; of a number at most one decimal."""
    return value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")
