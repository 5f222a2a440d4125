"""`lightning-rl explain`: where does a config value come from?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from lightning_rl.cli.parser import TRUST, Parser
from lightning_rl.errors import ConfigError

__all__ = ["explain"]


def explain(arguments: Sequence[str]) -> int:
    """Say where a value comes from: explain RUN_DIR KEY, explain policy=ppo env=cartpole KEY, explain RUN_DIR --all."""
    parser = Parser(prog="lightning-rl explain", description=explain.__doc__)
    parser.add_argument("words", nargs="+", help="a run directory or overrides (key=value), and one key")
    parser.add_argument("--all", action="store_true", help="list the keys that differ from their choices' defaults")
    parser.add_argument("--trust", **TRUST)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_intermixed_args(arguments)
    run_dir = Path(options.words[0]) if "=" not in options.words[0] and Path(options.words[0]).is_dir() else None
    overrides = [word for word in options.words if "=" in word]
    keys = [word for word in options.words[run_dir is not None :] if "=" not in word]
    if run_dir is not None and overrides:
        raise ConfigError(f"{run_dir} has its own overrides: leave out {overrides[0]}, or the directory")
    if len(keys) != (not options.all):
        expected = "no key beside --all" if options.all else "one key, such as policy.lr (or --all)"
        raise ConfigError(f"explain {' '.join(options.words)}: expected {expected}")
    from lightning_rl.runs import explanation

    if options.all:
        rows = explanation.explain_all(overrides, run_dir, options.trust)
        print(json.dumps({"keys": rows}) if options.json else explanation.all_as_text(rows))
        return 0
    if run_dir is None:
        found = explanation.explain(keys[0], overrides)
    else:
        found = explanation.explain_run(run_dir, keys[0], options.trust)
    print(json.dumps(found) if options.json else explanation.as_text(found))
    return 0
