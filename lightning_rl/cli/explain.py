"""`lightning-rl explain`: shows where a config value comes from."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from lightning_rl.cli.parser import TRUST, Parser
from lightning_rl.errors import ConfigError
from lightning_rl.run_directory.config_file import CONFIG_FILE

__all__ = ["explain"]


def explain(arguments: Sequence[str]) -> int:
    """Show the origin of a value: explain RUN_DIR KEY, explain policy=ppo env=cartpole KEY, explain RUN_DIR --all."""
    parser = Parser(prog="lightning-rl explain", description=explain.__doc__)
    parser.add_argument("words", nargs="+", help="a run directory or overrides (key=value), followed by one key")
    parser.add_argument("--all", action="store_true", help="list all keys that differ from their choices' defaults")
    parser.add_argument("--trust", **TRUST)
    options = parser.options(arguments)
    first = Path(options.words[0])  # "=" may be in a run directory's name as well
    # A long override could be no file's name, for which `Path.is_dir` raises an error.
    found = os.path.isdir(first) and ("=" not in str(first) or (first / CONFIG_FILE).is_file())
    run_dir = first if found else None
    rest = options.words[run_dir is not None :]
    overrides, keys = [word for word in rest if "=" in word], [word for word in rest if "=" not in word]
    if (run_dir is not None and overrides) or len(keys) != (not options.all):
        raise ConfigError(
            f"explain {' '.join(options.words)}: expected a run directory or overrides such as policy=ppo "
            "env=cartpole, followed by one key such as policy.lr, or by --all"
        )
    from lightning_rl.runs import explanation

    if options.all:
        rows = explanation.explain_all(overrides, run_dir, options.trust)
        parser.show({"keys": rows}, explanation.all_as_text(rows))
        return 0
    if run_dir is None:
        found = explanation.explain(keys[0], overrides)
    else:
        found = explanation.explain_run(run_dir, keys[0], options.trust)
    parser.show(found, explanation.as_text(found))
    return 0
