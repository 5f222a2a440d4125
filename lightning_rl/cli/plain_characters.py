"""Writes what a terminal or a pipe cannot encode, such as an arrow in ASCII, with characters that it has."""

from __future__ import annotations

import codecs
import io
import sys
import unicodedata

__all__ = ["replace_unknown_characters"]

PLAIN = {
    **{"…": "...", "−": "-", "→": "->", "←": "<-", "·": "*", "×": "x", "≥": ">=", "≤": "<=", "±": "+-", "∞": "inf"},
    **{"√": "sqrt", "∝": "~", "✓": "ok", "‖": "||", "█": "#", "░": ".", "▀": "#", "–": "-", "—": "-"},
}


def replace_unknown_characters() -> None:
    """Let stdout and stderr replace what their encoding lacks instead of raising UnicodeEncodeError."""
    codecs.register_error("lightning_rl.plain", _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # others, such as a notebook's, take any text
            stream.reconfigure(errors="lightning_rl.plain")


def _plain(error: UnicodeError) -> tuple[str, int]:
    """The error handler of a codec: the replacement, and where encoding continues."""
    assert isinstance(error, UnicodeEncodeError)
    return "".join(map(_in_ascii, error.object[error.start : error.end])), error.end


def _in_ascii(character: str) -> str:
    if character in PLAIN:
        return PLAIN[character]
    name = unicodedata.name(character, "")
    if name.startswith("GREEK"):
        return name.split()[-1].lower().replace("lamda", "lambda")
    plain = unicodedata.normalize("NFKD", character).replace("\N{FRACTION SLASH}", "/")
    return plain.encode("ascii", "ignore").decode() or ("" if unicodedata.combining(character) else "?")
