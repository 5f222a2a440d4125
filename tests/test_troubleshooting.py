"""The messages on docs/troubleshooting.md are the package's: of the golden file where it has them, or of the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.golden_messages import FILE, outcome_of

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `(.+?)` \| (?:`(.+?)`|–) \|", PAGE.split("## Messages")[1], re.MULTILINE)
GOLDEN = FILE.read_text(encoding="utf-8")


def has(text: str, message: str) -> bool:
    """Whether a text has a message of the page, in which … stands for anything."""
    return re.search(".{0,80}?".join(re.escape(part) for part in message.split("…")), text) is not None


def texts_in_the_code() -> str:
    """All strings of the package's source, those of f-strings with `…` for each value."""
    texts = []
    for file in (ROOT / "lightning_rl").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                texts.append("".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    return "\n".join(texts)


def test_every_row_is_read() -> None:
    assert len(ROWS) >= 20 and sum(bool(command) for _, command in ROWS) >= 10
    assert len(ROWS) == PAGE.split("## Messages")[1].count("\n| `")


def test_a_command_of_the_page_gives_the_message_beside_it() -> None:
    blocks = dict(block.split("\n", 1) for block in GOLDEN.strip().split("\n\n"))
    for message, command in ROWS:
        if command:
            given = blocks.get(f"$ lightning-rl train {command}") or outcome_of(f"train {command}").err
            assert has(given, message), (command, message, given)


def test_the_package_has_the_messages_without_a_command() -> None:
    others = [message for message, command in ROWS if not command and not has(GOLDEN, message)]
    code = texts_in_the_code()
    assert [message for message in others if not has(code, message)] == []
