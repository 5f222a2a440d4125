"""`lightning-rl evaluate`: whole episodes with a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from lightning_rl.cli.parser import TRUST, Parser
from lightning_rl.config import descriptions
from lightning_rl.runs import evaluation

__all__ = ["evaluate"]


def evaluate(arguments: Sequence[str]) -> int:
    """Play whole episodes with a checkpoint: evaluate RUN_DIR [--best] [--episodes 100] [--json]."""
    parser = Parser(prog="lightning-rl evaluate", description=evaluate.__doc__)
    parser.add_argument("checkpoint", type=Path, help="a .ckpt file, or a run directory for its last.ckpt")
    parser.add_argument("--best", action="store_true", help="of the run directory, the one with the best evaluation")
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--explore", action="store_true", help="sample actions as in training, not the best")
    parser.add_argument("--env", help="environment id or import path; default: the run's own")
    parser.add_argument("--trust", **TRUST)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    result = evaluation.evaluate(
        options.checkpoint,
        best=options.best,
        env=options.env,
        episodes=options.episodes,
        seed=options.seed,
        explore=options.explore,
        trust=options.trust,
    )
    print(json.dumps(result) if options.json else descriptions.evaluation(result))
    return 0
