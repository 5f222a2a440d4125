"""`lightning-rl resume`: continues a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lightning_rl.cli.parser import TRUST, Parser
from lightning_rl.cli.train import report_outcome
from lightning_rl.config import check_config
from lightning_rl.config.compose import parse_overrides
from lightning_rl.errors import ConfigError, printable
from lightning_rl.run_directory.checkpoints import checkpoint_of, has_checkpoint, naming_others
from lightning_rl.run_directory.config_file import read_config, trust_in_config
from lightning_rl.run_directory.regular_files import refuse_links
from lightning_rl.runs import run
from lightning_rl.version import __version__

__all__ = ["resume"]

OTHER = "--checkpoint FILE"
KEYS = "keys to change, such as total_env_steps=200_000; an unsupported key is an error that lists the supported ones"


def resume(arguments: Sequence[str]) -> int:
    """Continue a run: resume RUN_DIR [total_env_steps=…]."""
    parser = Parser(prog="lightning-rl resume", description=resume.__doc__)
    parser.add_argument("run_dir", type=Path, help="directory of the run")
    parser.add_argument("overrides", nargs="*", help=KEYS)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--checkpoint", type=Path, help="a file in RUN_DIR/checkpoints; default last.ckpt")
    which.add_argument("--best", action="store_true", help="continue from the checkpoint with the best evaluation")
    parser.add_argument("--trust", **TRUST)
    parser.add_argument("--force", action="store_true", help="accept another run's checkpoint, or an edited config")
    options = parser.parse_intermixed_args(arguments)
    changed = parse_overrides(options.overrides)
    # The imports of torch and Lightning that follow may take seconds.
    print(f"lightning_rl {__version__}: resume {printable(str(options.run_dir))}", flush=True)
    refuse_links(options.run_dir)
    config = run.resumed_config(options.run_dir, changed, options.trust)
    if options.checkpoint is None and not has_checkpoint(options.run_dir):
        raise ConfigError(f"{options.run_dir} has no checkpoint to continue from: {run.AFRESH}")
    checkpoint = options.checkpoint or checkpoint_of(options.run_dir, best=options.best, how=OTHER)
    names = trust_in_config(read_config(options.run_dir), options.run_dir, options.trust)
    from lightning_rl.run_directory.checkpoint_files import counters_in  # torch

    with names.restrict_imports(), naming_others(checkpoint, OTHER):
        check_config(config)
        run.check_same_run(config, checkpoint, changed, force=options.force)
        print(f"resuming {checkpoint}", flush=True)
        for line in run.standing_still(config, counters_in(checkpoint)["env_steps"]):
            print(f"note: {line}", flush=True)
        return report_outcome(run.train(config, ckpt_path=checkpoint), config)
