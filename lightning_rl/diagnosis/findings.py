"""What an examination found: one line per subject, with a level and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from lightning_rl.errors import printable

__all__ = ["Finding", "Level", "as_json", "as_text", "exit_code"]

Level = Literal["ok", "warn", "bad"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was examined.

    Args:
        subject: what was examined, in a few words.
        level: "ok"; "warn": works, and costs time or surprises; "bad": a run fails, or learns something else.
        text: what was found.
        fix: what to do about it; empty if there is nothing to do.
    """

    subject: str
    level: Level
    text: str
    fix: str = ""


def as_text(findings: Sequence[Finding]) -> str:
    """One line per finding, a second one for its fix, and a last one that counts the levels."""
    width = max((len(finding.subject) for finding in findings), default=0)
    lines = []
    for finding in findings:
        lines.append(f"{finding.level:5} {finding.subject:{width}}  {printable(finding.text)}")
        if finding.fix:
            lines.append(f"{'':5} {'':{width}}  → {printable(finding.fix)}")
    return "\n".join([*lines, "", ", ".join(f"{count} {level}" for level, count in counts(findings).items())])


def counts(findings: Sequence[Finding]) -> dict[str, int]:
    """How many findings have each level."""
    return {level: sum(finding.level == level for finding in findings) for level in ("ok", "warn", "bad")}


def as_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """Counts of the levels, and the findings as plain data."""
    return {**counts(findings), "findings": [asdict(finding) for finding in findings]}


def exit_code(findings: Sequence[Finding]) -> int:
    """1 if a finding is bad, else 0."""
    return int(any(finding.level == "bad" for finding in findings))
