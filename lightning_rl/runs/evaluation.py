"""Evaluates a checkpoint by playing whole episodes: mean return with a confidence interval."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lightning_rl.config.keys import value_at
from lightning_rl.errors import CheckpointError, ConfigError, check_at_least_one, note_name
from lightning_rl.intervals import confidence_interval, deviation
from lightning_rl.rollouts.worker_options import EVALUATED_TOGETHER
from lightning_rl.run_directory.checkpoints import checkpoint_of, naming_others
from lightning_rl.run_directory.config_file import CONFIG_FILE, is_own_config, read_config, relocate_to_checkpoint
from lightning_rl.run_directory.signature import is_own_checkpoint
from lightning_rl.schema.ranges import Count
from lightning_rl.schema.signatures import coerce
from lightning_rl.schema.trust import FileTrust, trust_names

if TYPE_CHECKING:
    from lightning_rl.envs.creator import EnvCreator
    from lightning_rl.policies import Policy

__all__ = [
    "checkpoint_file",
    "evaluate",
    "load_environment",
    "load_policy",
    "load_policy_and_environment",
]

SECONDS_BETWEEN_LINES = 5.0
RANDOM = "random_{}"  # id of the policy that acts at random for an agent


class Progress:
    """Says from time to time how far an evaluation is, so that long episodes do not look like a hang.

    Args:
        episodes: how many are played.
        envs: environments that are stepped together.
        say: gets a line.
    """

    def __init__(self, episodes: int, envs: int, say: Callable[[str], Any]) -> None:
        self.episodes, self.envs, self.say = episodes, envs, say
        self.ended = self.steps = 0
        self._said = time.monotonic()

    def on_episode_end(self, **episode: Any) -> None:
        """Count an episode; the worker calls this."""
        self.ended += 1

    def count_step(self) -> bool:
        """Count a step of all environments; never asks to stop (`WorkerSet.stop_when`)."""
        self.steps += self.envs
        if time.monotonic() - self._said > SECONDS_BETWEEN_LINES:
            self._said = time.monotonic()
            self.say(f"{min(self.ended, self.episodes)} of {self.episodes} episodes, {self.steps:,} steps")
        return False


def evaluate(
    checkpoint: Path,
    *,
    best: bool = False,
    env: str | None = None,
    episodes: int = 100,
    seed: int = 0,
    explore: bool = False,
    max_steps: int | None = None,
    against: str | None = None,
    trust: str | Sequence[str] = (),
    say: Callable[[str], Any] | None = None,
) -> dict[str, Any]:
    """Play `episodes` whole episodes with the policy of a checkpoint.

    Args:
        checkpoint: a .ckpt file, or a run directory for its last one.
        best: whether to take a run directory's checkpoint with the best evaluation.
        env: environment id, import path or preset; `None`: the run's own (its evaluation environment if it has one).
        episodes: number of episodes, at least 1.
        seed: seed of environments and sampled actions.
        explore: sample actions as in training instead of the best ones.
        max_steps: an episode that continues after that many steps is cut there; `None`: as in the evaluations of the
            run, whose `evaluation.max_episode_steps` may say that none is.
        against: "random": of several agents each in turn keeps its policy and plays its share of the episodes, in which
            all others draw random actions, and its return alone counts.
        trust: import prefixes that the files may name, as `Policy.load`.
        say: gets a line every few seconds; `None`: nothing is said.

    Returns:
        mean, std, ci95 (of the mean; `None` for one episode), length_mean, length_std, and the episodes' returns and
        lengths; "cut", how many episodes would have continued; with several agents "policies", the mean return of each
        policy's agents (with `against` of each agent); of a zero-sum game "sides", how many episodes each agent won,
        drew and lost.

    Raises:
        CheckpointError: the file is missing, damaged or foreign, names code that is not trusted, or its spaces are not
            the environment's.
        ConfigError: the environment is unknown, or is code that is not trusted; or `against` is not "random", or there
            is one agent only.
    """
    check_at_least_one(episodes=episodes, max_steps=1 if max_steps is None else max_steps)
    from lightning_rl.data.evaluator import longest_evaluated
    from lightning_rl.rollouts.episodes import was_cut
    from lightning_rl.rollouts.worker_set import WorkerSet

    file, policy, creator = load_policy_and_environment(checkpoint, best=best, env=env, trust=trust)
    limit = longest_evaluated(longest_episode(file, env), creator) if max_steps is None else max_steps
    envs = min(episodes, EVALUATED_TOGETHER)
    progress = Progress(episodes, envs, say or (lambda line: None))
    sides = [] if against is None else sides_against(against, policy, episodes)
    workers = WorkerSet(
        creator,
        policy,
        num_envs=envs,
        callbacks=[progress],
        seed=seed,
        stream="evaluation",
        explore=explore,
        max_episode_steps=limit,
    )
    workers.stop_when(progress.count_step)
    try:
        by_side = {
            side: play_random(workers, policy, side, (episodes + n) // len(sides)) for n, side in enumerate(sides)
        }
        played = [each for of_side in by_side.values() for each in of_side] if sides else workers.run_episodes(episodes)
    finally:
        workers.stop()
    return {
        **{"checkpoint": str(file), "env": creator.name, "episodes": len(played)},
        **episode_statistics(played),
        "cut": sum(map(was_cut, played)),
        **against_random(by_side),
    }


def sides_against(against: str, policy: Any, episodes: int) -> list[str]:
    """The agents that play against random ones in turn; the policies of the others are added to `policy`.

    Raises:
        ConfigError: see `evaluate`.
    """
    if against != "random":
        raise ConfigError(f"against={against!r}; expected random", key="against", value=against)
    agents: list[str] = [*policy.agents]
    if not 2 <= len(agents) <= episodes:
        raise ConfigError(
            f"against=random with {max(len(agents), 1)} agents and episodes={episodes}: each agent in turn plays "
            "against the others; expected at least two agents, and an episode for each",
            key="against",
            value=against,
        )
    for agent in agents:
        policy.add_policy(RANDOM.format(agent), {"_target_": "random"}, spaces_of=agent)
    return agents


def play_random(workers: Any, policy: Any, side: str, episodes: int) -> list[Any]:
    """Episodes in which one agent has its policy and all others draw random actions; the return is that agent's."""
    from lightning_rl.rollouts.episodes import Episode

    before = policy.mapping

    def random_others(agent: str, rng: Any) -> str:
        return before.assign(rng)[agent] if agent == side else RANDOM.format(agent)

    policy.set_policy_mapping(random_others)
    try:
        played = workers.run_episodes(episodes)
    finally:
        policy.set_policy_mapping(before.given)
    return [Episode(each.by_agent[side][1], each[1], each.by_agent, each.cut) for each in played]


def against_random(by_side: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """The mean return of each agent that played against random ones, and its results in a zero-sum game."""
    if not by_side:
        return {}
    results = {side: zero_sum_results([each.by_agent for each in played]) for side, played in by_side.items()}
    return {
        "policies": {side: statistics.fmean(ret for ret, _ in played) for side, played in by_side.items()},
        **({"sides": {side: result[side] for side, result in results.items()}} if all(results.values()) else {}),
    }


def load_policy_and_environment(
    checkpoint: Path, *, best: bool, env: str | None, trust: str | Sequence[str]
) -> tuple[Path, Policy, EnvCreator]:
    """The file, the policy in it, and the creator of the environments that it acts in.

    Args:
        checkpoint, best, env, trust: see `evaluate`.

    Raises:
        CheckpointError, ConfigError: see `evaluate`.
    """
    file = checkpoint_file(checkpoint, best)
    policy = load_policy(file, trust)
    return file, policy, load_environment(file, policy, env, trust)


def load_policy(file: Path, trust: str | Sequence[str] = ()) -> Policy:
    """The policy of a checkpoint.

    Raises:
        CheckpointError: see `Policy.load`; names the other checkpoints of the run.
    """
    from lightning_rl.policies import Policy

    with naming_others(file, "its path"):
        return Policy.load(file, trust=trust)


def load_environment(file: Path, policy: Policy, env: str | None = None, trust: str | Sequence[str] = ()) -> EnvCreator:
    """The `EnvCreator` in which the policy of a checkpoint acts: `env`, or that of its run.

    Raises:
        CheckpointError: the policy's spaces are not the environment's.
        ConfigError: see `environment`.
    """
    from lightning_rl.envs.creator import EnvCreator

    keywords, names = environment(file, env, trust)
    with names.restrict_imports():
        creator = EnvCreator(**keywords)
        check_same_spaces(file, policy, creator)
    return creator


def checkpoint_file(checkpoint: Path, best: bool) -> Path:
    """The checkpoint itself, or of a run directory its last or best file.

    Raises:
        CheckpointError: the run directory has no such file.
        ConfigError: `best` without a run directory.
    """
    if os.path.isdir(checkpoint):  # no error for a name that is too long
        return checkpoint_of(checkpoint, best=best)
    if best:
        raise ConfigError(f"the best one is chosen among the files of a run directory, and {checkpoint} is none")
    return checkpoint


def check_same_spaces(file: Path, policy: Any, creator: Any) -> None:
    """Check that a policy has the spaces of an environment; bounds of observations may differ, as data have none.

    Raises:
        CheckpointError: it has others.
    """
    from lightning_rl.spaces import space_difference

    for name, theirs in zip(("observation_space", "action_space"), creator.spaces(), strict=True):
        if difference := space_difference(getattr(policy, name), theirs, bounds=name == "action_space"):
            raise CheckpointError(f"{file}: its {name} is not that of {creator.name!r}: {difference}")


def episode_statistics(episodes: Sequence[tuple[float, int]]) -> dict[str, Any]:
    """What `evaluate` returns of the episodes, given as (return, length)."""
    returns, lengths = [float(ret) for ret, _ in episodes], [int(length) for _, length in episodes]
    by_policy: dict[str, list[float]] = {}
    for episode in episodes:
        for name, value in getattr(episode, "by_policy", {}).items():
            by_policy.setdefault(name, []).append(float(value))
    sides = zero_sum_results([each for episode in episodes if (each := getattr(episode, "by_agent", None))])
    of_policies = {"policies": {name: statistics.fmean(values) for name, values in by_policy.items()}}
    return {
        "mean": statistics.fmean(returns),
        "std": deviation(returns),
        "ci95": confidence_interval(returns) if len(returns) > 1 else None,
        "length_mean": statistics.fmean(lengths),
        "length_std": deviation(lengths),
        "returns": returns,
        "lengths": lengths,
        **(of_policies if by_policy else {}),
        **({"sides": sides} if sides else {}),
    }


def zero_sum_results(episodes: Sequence[Mapping[str, tuple[str, float]]]) -> dict[str, dict[str, int]]:
    """How many episodes each agent of a zero-sum game has won, drawn and lost; {} for another game.

    The sum of the returns says nothing there. An agent wins by the highest return, and draws if it shares it.

    Args:
        episodes: the episodes of each, agent → (its policy's id, its return).
    """
    returns = [{agent: value for agent, (_, value) in episode.items()} for episode in episodes]
    if not any(any(each.values()) for each in returns) or any(
        len(each) < 2 or not math.isclose(sum(each.values()), 0.0, abs_tol=1e-6) for each in returns
    ):
        return {}
    found: dict[str, dict[str, int]] = {}
    for each in returns:
        best = max(each.values())
        shared = sum(value == best for value in each.values()) > 1
        for agent, value in each.items():
            counts = found.setdefault(agent, dict.fromkeys(("won", "drawn", "lost"), 0))
            counts["lost" if value < best else "drawn" if shared else "won"] += 1
    return found


def environment(checkpoint: Path, env: str | None, trust: str | Sequence[str] = ()) -> tuple[dict[str, Any], FileTrust]:
    """Keywords of the `EnvCreator` to evaluate in, and what they may name: `env`, or the environment of the run.

    Raises:
        ConfigError: there is no config, it is damaged, or names code that is not trusted, or wrappers that write to
            another directory than the run's.
    """
    if env is not None:
        note_name(env)
        return env_choice(env), FileTrust(checkpoint, trust)
    from lightning_rl.envs.creator import EnvCreator

    config, file, own = config_of_run(checkpoint)
    keywords = value_at(config, "evaluation.env")
    found = {"env": config.get("env")} if keywords is None else {"evaluation": {"env": keywords}}
    keywords = found["env"] if keywords is None else keywords
    names = FileTrust(file, trust, write_to=config["run_dir"], own=own)
    names.check(found)
    if not isinstance(keywords, dict) or not {"id"} <= keywords.keys() <= {each.name for each in fields(EnvCreator)}:
        raise ConfigError(f"{file} names no environment: say which one with --env ID")
    return keywords, names


def env_choice(env: str) -> dict[str, Any]:
    """Keywords of the environment with that id, or of the preset of that name: "cartpole"."""
    from lightning_rl.config.compose import compose_config  # Hydra
    from lightning_rl.config.groups import group_options, option_text

    if env not in group_options("env") or "???" in option_text("env", env):
        return {"id": env}
    keywords = compose_config([f"env={env}", "experiment=none"])["env"]
    trust_names(keywords)  # the user's own preset
    return keywords


def config_of_run(checkpoint: Path) -> tuple[dict[str, Any], Path, bool]:
    """The config of a checkpoint's run, the file that it is from, and whether this user's run wrote it.

    Its `run_dir` is where that run may write now.

    It is the run directory's; of a file that lies elsewhere, as one of `Algorithm.save`, the one inside it.

    Raises:
        ConfigError: there is none, as in the file of your own `fit`, or it is damaged.
    """
    run_dir = checkpoint.absolute().parent.parent
    if (run_dir / CONFIG_FILE).is_file():
        config = read_config(run_dir)
        return config, run_dir / CONFIG_FILE, is_own_config(config, run_dir)
    from lightning_rl.run_directory.checkpoint_files import read_checkpoint_file  # torch

    content = read_checkpoint_file(checkpoint, checksums=False)  # `load_policy` has compared them
    config = content.get("config")
    if not isinstance(config, dict) or not isinstance(config.get("run_dir"), str):
        raise ConfigError(
            f"{checkpoint} holds no config, and is in no run directory: say which environment with --env ID"
        )
    return relocate_to_checkpoint(config, checkpoint), checkpoint, is_own_checkpoint(content)


def longest_episode(checkpoint: Path, env: str | None) -> Any:
    """The `evaluation.max_episode_steps` of a checkpoint's run: a number, "auto", or `None`.

    Args:
        checkpoint: the file.
        env: the environment that is played instead of the run's, for which the run need not have a config.

    Raises:
        ConfigError: the config is damaged, or has something else there.
    """
    try:
        config, _, _ = config_of_run(checkpoint)
    except ConfigError:
        if env is None:
            raise
        return "auto"
    limit = value_at(config, "evaluation.max_episode_steps")
    return coerce("evaluation.max_episode_steps", limit, Count | Literal["auto"] | None)
