"""Records whole episodes of a policy, of random play, or of both, as a data set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lightning_rl.errors import ConfigError, check_at_least_one
from lightning_rl.rollouts.worker_options import EVALUATED_TOGETHER, LONGEST_UNLIMITED_EPISODE
from lightning_rl.runs.evaluation import Progress, env_choice, load_policy_and_environment

__all__ = ["record_episodes"]


def record_episodes(
    checkpoint: Path,
    *,
    out: Path,
    episodes: int = 1000,
    random: float = 0.0,
    best: bool = False,
    env: str | None = None,
    seed: int = 0,
    explore: bool = False,
    max_steps: int | None = None,
    trust: str | Sequence[str] = (),
    say: Callable[[str], Any] | None = None,
) -> dict[str, Any]:
    """Play whole episodes and write them as shards.

    Args:
        checkpoint: a .ckpt file, or a run directory for its last one; "random" for random play in `env`.
        out: directory of the shards.
        episodes: how many.
        random: share of them that is played with random actions, in [0, 1].
        best, env, seed, explore, trust, say: see `evaluation.evaluate`.
        max_steps: an episode that continues after that many steps is truncated; `None`: the environment's own limit, or
            5,000 steps if it declares none.

    Returns:
        What `data.offline.summary.summary` says about the data set, earlier shards in `out` included.

    Raises:
        CheckpointError, ConfigError: see `evaluation.evaluate`; or the share is out of range, or `out` has episodes of
            this policy and seed already.
    """
    check_at_least_one(episodes=episodes)
    if not 0 <= random <= 1:
        raise ConfigError(f"random={random}; expected the share of random episodes, in [0, 1]")
    from lightning_rl.data.offline.data_set import open_data
    from lightning_rl.data.offline.recorder import Recorder, digest_of
    from lightning_rl.data.offline.summary import summary
    from lightning_rl.envs.creator import EnvCreator
    from lightning_rl.policies import RandomPolicy
    from lightning_rl.rollouts.worker_set import WorkerSet

    if str(checkpoint) == "random":
        if env is None:
            raise ConfigError("record random plays in no environment: name one with --env")
        policy, creator, random = None, EnvCreator(**env_choice(env)), 1.0
    else:
        _, policy, creator = load_policy_and_environment(checkpoint, best=best, env=env, trust=trust)
    if creator.layout() is not None:
        raise ConfigError(f"record plays one agent, and {creator.name!r} has several: record a run with data.output")
    if max_steps is not None or creator.time_limit is None:
        creator = replace(creator, max_episode_steps=max_steps or LONGEST_UNLIMITED_EPISODE)
    played_randomly = round(random * episodes)
    shares = [(policy, episodes - played_randomly), (RandomPolicy(*creator.spaces(), seed=seed), played_randomly)]
    players = [(index, player, count) for index, (player, count) in enumerate(shares) if count]
    fixed = {"env": creator.name, "seed": seed, "explore": explore}
    _check_new(out, [{**fixed, "policy_digest": digest_of(player)} for _, player, _ in players])
    for index, player, count in players:
        # Each sample is an episode of every environment.
        together = next(envs for envs in range(min(count, EVALUATED_TOGETHER), 0, -1) if count % envs == 0)
        progress = Progress(count, together, say or (lambda line: None))
        workers = WorkerSet(
            creator,
            player,
            (index,),
            num_envs=together,
            fragment_length=1,
            batch_mode="complete_episodes",
            callbacks=[Recorder(out), progress],
            seed=seed,
            stream="evaluation",
            explore=explore,
        )
        try:
            for _ in range(count // together):
                workers.sample()
                progress.count_step()
        finally:
            workers.stop()
    return summary(open_data(out, skip_damaged=True))


def _check_new(out: Path, abouts: Sequence[Mapping[str, Any]]) -> None:
    """Raise a ConfigError if `out` has a shard with the facts of one of these."""
    from lightning_rl.data.offline.shards import read_shape

    for shard in out.glob("*.parquet"):
        known = read_shape(shard)[0].about or {}
        if any(about.items() <= known.items() for about in abouts):
            seed = known["seed"]
            raise ConfigError(
                f"{out} has episodes of this policy with seed {seed} already: give --seed={seed + 1}, say"
            )
