"""`lightning-rl evaluate`: evaluates a checkpoint on whole episodes."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from lightning_rl.cli.parser import Parser, add_policy_arguments, whole_number
from lightning_rl.config import descriptions
from lightning_rl.errors import printable
from lightning_rl.runs import evaluation
from lightning_rl.version import __version__

__all__ = ["evaluate"]


def evaluate(arguments: Sequence[str]) -> int:
    """Evaluate a checkpoint on whole episodes: evaluate RUN_DIR [--best] [--episodes 100] [--json]."""
    parser = Parser(prog="lightning-rl evaluate", description=evaluate.__doc__)
    add_policy_arguments(parser, episodes=100)
    limit = "maximum episode length; default: the run's evaluation.max_episode_steps"
    parser.add_argument("--max-steps", type=whole_number, help=limit)
    others = "with multiple agents: evaluate each agent in turn against random opponents"
    parser.add_argument("--against", choices=("random",), help=others)
    options = vars(parser.options(arguments))
    if not parser.as_json:  # the imports of torch and Lightning that follow may take seconds
        file = printable(str(options["checkpoint"]))
        print(f"lightning_rl {__version__}: {options['episodes']} episodes with {file}", flush=True)
    result = evaluation.evaluate(**options, say=lambda line: print(line, file=sys.stderr, flush=True))
    parser.show(result, descriptions.evaluation(result))
    return 0
