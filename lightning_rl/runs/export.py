"""Exports the policies of a checkpoint as files, each checked on observations of episodes that are played for it.

Without an environment (`env=none`), it is checked on samples of the observation space.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lightning_rl.errors import ConfigError
from lightning_rl.run_directory.atomic import check_writable
from lightning_rl.run_directory.regular_files import refuse_links
from lightning_rl.runs.evaluation import checkpoint_file, load_environment, load_policy
from lightning_rl.sample_batch import SampleBatch, flatten_fragment

__all__ = ["export"]

ENVIRONMENTS, STEPS = 4, 128  # the episodes of a check: rows of one fragment


def export(
    checkpoint: Path,
    *,
    format: str = "onnx",
    best: bool = False,
    out: Path | None = None,
    env: str | None = None,
    policy_id: str | None = None,
    seed: int = 0,
    trust: str | Sequence[str] = (),
) -> Iterator[dict[str, Any]]:
    """Export the policy of a checkpoint, or each of several.

    Args:
        checkpoint: a .ckpt file, or a run directory for its last one.
        format: "onnx", "torchscript" or "torch.export".
        best: whether to take a run directory's checkpoint with the best evaluation.
        out: directory of the files, with several policies one directory in it for each; `None`: "export" in the run's
            directory, or beside a checkpoint that has none.
        env: environment id or import path to record observations in; `None`: the run's own.
        policy_id: the id of several agents' policies, the one to export; `None`: all that have a model.
        seed: the seed of the environments.
        trust: import prefixes that the files may name, as `Policy.load`.

    Yields:
        Of each policy the contents of its policy.json, and "directory"; or "policy_id" and "refused", the reason why
        it cannot be exported (only where several are exported, and at least one can be).

    Raises:
        CheckpointError: see `evaluate`.
        ConfigError: a policy cannot be exported, there is none of that id, or a file differs from its policy.
    """
    from lightning_rl.policies.export import check_exportable, check_format, export_policy

    check_format(format)
    file = checkpoint_file(checkpoint, best)
    policy = load_policy(file, trust)
    exported = policy.policies.values() if policy_id is None else [policy.get_policy(policy_id)]
    chosen = {each.policy_id: each for each in exported}  # the id of a policy of one agent is `None`
    refused = {}
    for name, each in chosen.items():
        try:
            check_exportable(each)
        except ConfigError as error:
            if len(chosen) == 1:
                raise
            refused[name] = str(error)
    if len(refused) == len(chosen):
        raise ConfigError("; ".join(f"{name}: {reason}" for name, reason in refused.items()))
    creator = load_environment(file, policy, env, trust)
    recorded = {} if creator.name.endswith(":NoEnv") else record(policy, creator, seed)  # `env=none` plays no episodes
    directory = default_directory(file) if out is None else out
    check_writable(f"--out {directory}", directory)
    for name, each in chosen.items():
        if name in refused:
            yield {"policy_id": name, "refused": refused[name]}
            continue
        folder = directory if len(chosen) == 1 else directory / str(name)
        rows = recorded.get(name)
        about = {"env": creator.name, "checkpoint": str(file)}
        source = f"observations of episodes in {creator.name}"
        yield {"directory": str(folder), **export_policy(each, folder, rows, format=format, source=source, about=about)}


def record(policy: Any, creator: Any, seed: int) -> dict[str | None, SampleBatch]:
    """Rows `[N, …]` of the policy's best actions in the environment, by policy id; of policies that have acted."""
    from lightning_rl.rollouts.rollout_worker import RolloutWorker

    worker = RolloutWorker(
        creator,
        policy,
        num_envs=ENVIRONMENTS,
        fragment_length=STEPS,
        seed=seed,
        stream="evaluation",
        explore=False,
        vectorization="sync",
    )
    try:
        played = worker.sample()
    finally:
        worker.stop()
    if isinstance(played, SampleBatch):
        return {None: flatten_fragment(played)}
    rows = {name: flatten_fragment(fragment) for name, fragment in played.items()}
    return {name: found for name, found in rows.items() if found.count}


def default_directory(file: Path) -> Path:
    """Of a run its directory's "export"; else "export" beside the file."""
    run_dir = file.absolute().parent.parent
    home = run_dir if (run_dir / "config.yaml").is_file() else file.absolute().parent
    refuse_links(home)
    return home / "export"
