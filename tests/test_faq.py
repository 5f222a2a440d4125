"""The messages in docs/faq.md are those of the package: the code has them, and the commands beside them give them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from lightning_rl.cli import main

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "faq.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `(.+?)` \| (?:`(.+?)`|–) \|", PAGE.split("## Messages")[1], re.MULTILINE)


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


def test_there_are_messages() -> None:
    assert len(ROWS) >= 20 and sum(bool(command) for _, command in ROWS) >= 10
    assert len(ROWS) == PAGE.split("## Messages")[1].count("\n| `")


@pytest.mark.parametrize("message", [message for message, command in ROWS if not command])
def test_the_code_has_the_message(message: str) -> None:
    pattern = ".{0,80}?".join(re.escape(part) for part in message.split("…"))
    assert re.search(pattern, texts_in_the_code()), message


@pytest.mark.parametrize(("message", "command"), [row for row in ROWS if row[1]], ids=lambda text: text[:30])
def test_the_command_gives_the_message(
    message: str, command: str, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", *command.split()]) == 2
    pattern = ".+?".join(re.escape(part) for part in message.split("…"))
    assert re.search(pattern, capfd.readouterr().err), message
