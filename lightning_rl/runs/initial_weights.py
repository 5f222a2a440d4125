"""Gives the policy of a new run the weights and filters of a checkpoint: fine-tuning.

Only tensors (and the weights of a policy written from scratch, plain data) are taken from the file. No name in it is
imported, so it need not be trusted. Counters, optimizer and data start from scratch.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning_rl.errors import CheckpointError, short_repr
from lightning_rl.runs.evaluation import checkpoint_file

__all__ = ["load_initial_weights"]

SHOWN = 6  # names in a message


def load_initial_weights(policy: Any, source: str, strict: bool) -> str:
    """Copy the weights and filters of a checkpoint into a policy, by name.

    Args:
        policy: a newly constructed policy.
        source: a checkpoint file, or a run directory for its last.ckpt.
        strict: whether names and shapes have to be the same; if not, what fits is taken.

    Returns:
        A line about what was taken and what was left.

    Raises:
        CheckpointError: the file is missing, damaged or no checkpoint; or names or shapes differ, if `strict`; or
            nothing fits. The policy is unchanged then.
    """
    from lightning_rl.policies.checkpoints import differing_weights, read_checkpoint
    from lightning_rl.run_directory.checkpoint_files import from_plain

    try:
        file = checkpoint_file(Path(source), best=False)
        checkpoint = read_checkpoint(file)
    except CheckpointError as error:
        raise CheckpointError(f"init_from={short_repr(source)}: {error}") from error
    if not policy.has_model and not policy.agents:
        if "weights" not in checkpoint:
            raise CheckpointError(
                f"init_from={source} holds a {checkpoint['policy']['class']}, and {type(policy).__name__} has weights "
                "in a form of its own: give a checkpoint of that policy"
            )
        policy.set_weights(from_plain(checkpoint["weights"]))
        return f"init_from: the weights of {file}"
    theirs, ours = checkpoint["state_dict"], policy.state_dict()
    left = differing_weights(theirs, ours)
    fitting = {name: theirs[name] for name in ours if name not in left}
    if strict and left:
        raise CheckpointError(
            f"init_from={source} does not fit this policy (file against policy): {shortened(left)}: give the model "
            "and filters of that run, or init_from_strict=false, which takes what fits"
        )
    if not fitting:
        raise CheckpointError(f"init_from={source}: nothing fits this policy (file against policy): {shortened(left)}")
    policy.load_state_dict({**ours, **fitting})
    taken = f"init_from: {len(fitting)} of {len(ours)} tensors of {file}"
    return f"{taken}; left as they are (file against policy): {shortened(left)}" if left else taken


def shortened(left: Mapping[str, str]) -> str:
    """The first of the texts, and how many more there are."""
    more = f" and {len(left) - SHOWN} more" if len(left) > SHOWN else ""
    return "; ".join([*left.values()][:SHOWN]) + more
