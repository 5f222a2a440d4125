"""`lightning-rl doctor`: checks whether this machine is ready for runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lightning_rl.cli.parser import Parser

__all__ = ["doctor"]


def doctor(arguments: Sequence[str]) -> int:
    """Check this machine: doctor [--full] [--json]; exit code 1 if something needs to be fixed."""
    parser = Parser(prog="lightning-rl doctor", description=doctor.__doc__)
    parser.add_argument(
        "run_dir", nargs="?", type=Path, default=Path("runs"), help="directory for runs; default ./runs"
    )
    parser.add_argument("--full", action="store_true", help="also start a Ray session")
    options = parser.options(arguments)
    from lightning_rl.diagnosis.findings import as_json, as_text, exit_code
    from lightning_rl.diagnosis.machine import examine_machine

    findings = examine_machine(options.run_dir, full=options.full)
    parser.show(as_json(findings), as_text(findings))
    return exit_code(findings)
