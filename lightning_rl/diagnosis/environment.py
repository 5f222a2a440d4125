"""Examines an environment: the check before a run, and what only more steps, copies and processes can show."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from statistics import median
from typing import Any

import gymnasium as gym
import numpy as np

from lightning_rl.callbacks.rendering.frames import render_modes, render_picture
from lightning_rl.diagnosis.findings import Finding
from lightning_rl.diagnosis.fitting_policies import examine_policies
from lightning_rl.diagnosis.machine import usable_cores
from lightning_rl.diagnosis.random_play import Played, first_difference, play, trajectory
from lightning_rl.envs.check import on_one_line
from lightning_rl.envs.creator import EnvCreator, declared_time_limit
from lightning_rl.envs.goals import GOAL_PARTS
from lightning_rl.envs.multi_agent.packed_env import PackedEnv
from lightning_rl.envs.multi_agent.random_play import RandomPlayer
from lightning_rl.errors import EnvError, UnsupportedSpaceError
from lightning_rl.rollouts.worker_options import LONGEST_UNLIMITED_EPISODE
from lightning_rl.spaces import check_supported, leaf_spaces

__all__ = ["examine_env"]

STEPS, SECONDS = 1000, 10.0  # of the longest walk
COMPARED = 200  # steps of the walks that are compared
SEEDS = range(1, 6)  # some environments take 0 for no seed
LARGE_OBS, LARGE_REWARD = 100.0, 100.0
SLOW_STEP_S, SLOW_RESET_S = 5e-3, 1.0
SMALLEST_IMAGE = 32  # pixels; smaller arrays are boards
SHORTEST_LIMIT = 10  # steps; shorter episodes of one length are games of some moves
MOST_NAMED = 4  # agents in a line
LEAK_MB = 10.0  # in 1000 steps
LONG_RUN_STEPS = 1_000_000

CHANGE = "change env.id, env.kwargs, or the environment's __init__"
MEND = "change the environment as the line says, or wrap it (env.wrappers)"


def examine_env(creator: EnvCreator, steps: int = STEPS, seconds: float = SECONDS) -> list[Finding]:
    """Everything that a run needs of an environment; the first thing that is bad ends what builds upon it.

    Args:
        creator: the creator of the environment; its check is done whatever its `check` says.
        steps: the number of steps of the longest random walk.
        seconds: that this walk may take.

    Raises:
        ConfigError: the environment's id or a keyword cannot be.
    """
    start = time.perf_counter()
    try:
        env = replace(creator, check=False).make_single()
    except EnvError as error:
        missing = missing_module(error)
        fix = f"install the package that has the module {missing}" if missing else CHANGE
        return [Finding("creation", "bad", str(error), fix)]
    took = time.perf_counter() - start
    findings = [Finding("creation", "ok", f"{type(inside(env).unwrapped).__name__} in {took * 1e3:.0f} ms")]
    try:
        findings += _examine_opened(replace(creator, check=True), env, steps, seconds)
    finally:
        env.close()
    return findings


def inside(env: Any) -> Any:
    """The environment that a `PackedEnv` holds; any other as it is."""
    return env.env if isinstance(env, PackedEnv) else env


def missing_module(error: BaseException | None) -> str | None:
    """The module whose absence caused an error, which Gymnasium raises again without the module's name."""
    while error is not None and not (isinstance(error, ModuleNotFoundError) and error.name):
        error = error.__cause__
    return error.name if error is not None else None


def _examine_opened(creator: EnvCreator, env: Any, steps: int, seconds: float) -> Iterator[Finding]:
    """Findings of an open environment, those of the API first."""
    try:
        creator.spaces()
    except EnvError as error:
        yield Finding("API", "bad", str(error), MEND)
        return
    yield Finding("API", "ok", "resets, steps and spaces keep to it for 20 steps")
    player = RandomPlayer(inside(env), creator.name)
    unsupported = False
    kinds = agents_by_spaces(player.spaces)
    for agents, pair in kinds:
        for role, space in zip(("observation", "action"), pair, strict=True):
            finding = examine_space(f"{role} space{f' of {agents}' if agents else ''}", role, space)
            unsupported = unsupported or finding.level == "bad"
            yield finding
    try:
        played = play(player, steps, seconds)
    except EnvError as error:
        yield Finding("longer walk", "bad", str(error), MEND)
        return
    yield Finding("longer walk", "ok", f"{len(played.step_seconds)} random steps without a violation")
    yield from examine_episodes(env, played)
    yield examine_rewards(played.rewards)
    yield examine_sizes(played.largest)
    yield from examine_costs(played)
    yield examine_determinism(creator, env)
    yield examine_seeding(creator, env)
    yield examine_processes(creator, played.masked)
    yield examine_rendering(creator)
    yield from examine_extras_of_spaces(env, played)
    if not unsupported:
        yield from examine_policies(creator, [pair for _, pair in kinds], player.several)


def agents_by_spaces(spaces: Mapping[str, tuple[Any, Any]]) -> list[tuple[str, tuple[Any, Any]]]:
    """The names of agents with the same spaces, as one text, and these spaces."""
    found: list[tuple[list[str], tuple[Any, Any]]] = []
    for agent, pair in spaces.items():
        alike = next((agents for agents, other in found if other == pair), None)
        if alike is None:
            found.append(([agent], pair))
        else:
            alike.append(agent)
    return [(_named(agents), pair) for agents, pair in found]


def _named(agents: list[str]) -> str:
    """Names of agents as one text: all of a few, the first and the last of many."""
    few = len(agents) <= MOST_NAMED
    return ", ".join(agents) if few else f"{agents[0]} … {agents[-1]} ({len(agents)} agents)"


def examine_space(subject: str, role: str, space: gym.Space[Any]) -> Finding:
    """Whether a space is supported, and whether actions have bounds."""
    try:
        if not isinstance(space, gym.spaces.Tuple):
            check_supported(space, role)
    except UnsupportedSpaceError as error:
        return Finding(subject, "bad", str(error), "convert it in a wrapper (env.wrappers)")
    text = on_one_line(space)
    for path, leaf in leaf_spaces(space):
        if not isinstance(leaf, gym.spaces.Box) or leaf.dtype.kind != "f":
            continue
        if role == "action" and not leaf.is_bounded():
            where = f"part {path!r} " if path else ""
            fix = "give low and high: bounded actions are learned in [−1, 1], and SAC, TD3 and DDPG need bounds"
            return Finding(subject, "warn", f"{text}: {where}has no bounds", fix)
        if role == "observation" and len(leaf.shape) == 3 and min(leaf.shape[:2]) >= SMALLEST_IMAGE:
            fix = "give images as uint8 in [0, 255]: a quarter of the memory in replay and between processes"
            return Finding(subject, "warn", f"{text}: an image of {leaf.dtype}", fix)
    return Finding(subject, "ok", text)


def examine_episodes(env: Any, played: Played) -> Iterator[Finding]:
    """How episodes end."""
    count, walked = len(played.lengths), len(played.step_seconds)
    limit = declared_time_limit(env)
    limited = f"time limit {limit} steps" if limit else "no time limit declared"
    if not count:
        if limit and limit > walked:
            yield Finding("episodes", "ok", f"none ended within {walked} random steps; {limited}")
            return
        fix = (
            f"look further with --steps {10 * walked}; if episodes never end, set env.max_episode_steps: without an "
            f"end there is no return, and evaluations cut episodes after {LONGEST_UNLIMITED_EPISODE:,} steps "
            "(evaluation.max_episode_steps)"
        )
        yield Finding("episodes", "warn", f"none ended within {walked} random steps; {limited}", fix)
        return
    ends = sum(played.terminated)
    lengths = f"{min(played.lengths)} … {max(played.lengths)} steps"
    text = f"{count} ended ({ends} terminated, {count - ends} truncated), {lengths}; {limited}"
    if ends == count >= 3 and len(set(played.lengths)) == 1 and played.lengths[0] >= SHORTEST_LIMIT:
        fix = (
            "if this is a time limit, return truncated=True there instead of terminated=True (or set "
            "env.max_episode_steps): the value after a terminated step is taken as 0"
        )
        yield Finding("episodes", "warn", f"{text}: all of one length", fix)
        return
    yield Finding("episodes", "ok", text)


def examine_rewards(rewards: list[float]) -> Finding:
    """The scale of the rewards."""
    values = np.asarray(rewards)
    text = f"{values.min():.4g} … {values.max():.4g}, mean {values.mean():.4g} of a random policy"
    if np.abs(values).max() > LARGE_REWARD:
        fix = "policy.reward_filter=return_std divides by the running deviation of returns (or scale them in the env)"
        return Finding("rewards", "warn", f"{text}: large", fix)
    if not values.any():
        fix = "is this so by design? A sparse reward needs exploration=rnd or curiosity, or data=hindsight"
        return Finding("rewards", "warn", f"all 0 in {len(values)} random steps", fix)
    if values.min() == values.max() and values.size > 1:
        return Finding("rewards", "ok", f"always {values.min():.4g}: only the length of an episode counts")
    return Finding("rewards", "ok", text)


def examine_sizes(largest: dict[str, float]) -> Finding:
    """The scale of the observations."""
    if not largest:
        return Finding("observations", "ok", "images or discrete: the model scales them")
    place = max(largest, key=lambda name: largest[name])
    text = f"largest absolute value {largest[place]:.4g}" + (f" (part {place!r})" if place else "")
    if largest[place] > LARGE_OBS:
        fix = "policy.observation_filter=mean_std normalizes them (or scale them in a wrapper)"
        return Finding("observations", "warn", f"{text}: large for a network's input", fix)
    return Finding("observations", "ok", text)


def examine_costs(played: Played) -> Iterator[Finding]:
    """Time of a step and a reset, and memory that steps keep."""
    step, reset = median(played.step_seconds), max(played.reset_seconds)
    text = f"step {step * 1e6:.0f} µs (median), reset {reset * 1e3:.1f} ms (longest)"
    if step > SLOW_STEP_S or reset > SLOW_RESET_S:
        hours = step * LONG_RUN_STEPS / 3600
        cores = max(1, int(usable_cores()))
        fix = f"workers.vectorization=async or workers.num_workers={cores} step in other processes"
        if cores == 1:
            fix = "a machine with more cores can step several environments at a time (workers.num_workers)"
        yield Finding("speed", "warn", f"{text}: {hours:.1f} h for 10⁶ steps of one environment", fix)
    else:
        yield Finding("speed", "ok", f"{text}; {1 / step:,.0f} steps/s")
    grown = played.grown_mb * 1000 / max(1, len(played.step_seconds))
    text = f"{grown:+.1f} MiB in 1000 steps"
    if grown > LEAK_MB:
        fix = "the environment keeps what it creates: look for lists that grow, and figures or windows left open"
        yield Finding("memory", "warn", text, fix)
    else:
        yield Finding("memory", "ok", text)


def examine_determinism(creator: EnvCreator, env: Any) -> Finding:
    """Whether two copies give the same trajectory for the same seed and actions."""
    other = creator.make_single()
    try:
        step = first_difference(*(trajectory(inside(each), creator.name, COMPARED, SEEDS[0]) for each in (env, other)))
    finally:
        other.close()
    if step is None:
        return Finding("determinism", "ok", "two copies with one seed give the same episode")
    fix = "draw from self.np_random only (super().reset(seed=seed) seeds it), and keep no state from before a reset"
    where = "reset" if step == 0 else f"step {step - 1}"
    return Finding("determinism", "warn", f"two copies with one seed differ from {where} on", fix)


def examine_seeding(creator: EnvCreator, env: Any) -> Finding:
    """Whether seeds matter, and whether a reset without a seed begins another episode."""

    def differ(found: list[list[Any]]) -> bool:
        return any(first_difference(found[0], each) is not None for each in found[1:])

    by_seed = differ([trajectory(inside(env), creator.name, COMPARED, seed) for seed in SEEDS])
    unseeded = differ([trajectory(inside(env), creator.name, COMPARED, None) for _ in SEEDS])
    fix = (
        "call super().reset(seed=seed), draw from self.np_random, and never seed a generator by a fixed number in reset"
    )
    if by_seed and unseeded:
        return Finding("seeding", "ok", "other seeds give other episodes, and resets without a seed follow on")
    if by_seed:
        return Finding("seeding", "warn", "a reset without a seed begins the same episode again", fix)
    if unseeded:
        return Finding("seeding", "warn", "all seeds give the same episode, and resets without a seed others", fix)
    return Finding("seeding", "ok", "every episode begins and continues in the same way: nothing is random in it")


def examine_processes(creator: EnvCreator, masked: bool = False) -> Finding:
    """Whether another process can create and step the environment, as worker processes do.

    Args:
        creator: the creator of the environment.
        masked: whether some actions are forbidden, so that none is taken at random.
    """
    try:
        vector = creator.make(1, "async")
        try:
            vector.reset(seed=0)
            if not masked:
                vector.step(vector.action_space.sample())
        finally:
            vector.close()
    except Exception as error:  # pickling alone raises many kinds
        text = f"another process cannot run it ({type(error).__name__}: {' '.join(str(error).split())[:200]})"
        fix = "give env.id the import path of a module-level class or function, and plain env.kwargs"
        return Finding("processes", "warn", text, fix)
    return Finding("processes", "ok", "another process creates and steps it: num_workers and async work")


def examine_rendering(creator: EnvCreator) -> Finding:
    """The render modes, and whether pictures come."""
    modes, _ = render_modes(creator)
    if "rgb_array" not in modes:
        fix = 'add "rgb_array" to metadata["render_modes"], take render_mode, return uint8 [H, W, 3] from render()'
        return Finding("rendering", "ok", f"modes {modes or 'none'}: no pictures and no videos", fix)
    try:
        height, width, _ = render_picture(creator).shape
    except EnvError as error:
        fix = "return an array of uint8 [H, W, 3], and install what draws; `doctor` knows more"
        return Finding("rendering", "warn", f"rgb_array: {error}", fix)
    return Finding("rendering", "ok", f"modes {', '.join(modes)}; a picture has {height}×{width}")


def examine_extras_of_spaces(env: Any, played: Played) -> Iterator[Finding]:
    """Action masks and goals, for which there are their own algorithms."""
    if played.masked:
        yield Finding("action masks", "ok", "found: policies for Discrete actions choose among the allowed ones")
    space = getattr(env, "observation_space", None)
    if isinstance(space, gym.spaces.Dict) and set(GOAL_PARTS) <= set(space.spaces):
        if hasattr(env.unwrapped, "compute_reward"):
            yield Finding("goals", "ok", "found, with compute_reward: data=hindsight learns from other goals as well")
        else:
            fix = "add compute_reward(achieved_goal, desired_goal, info)"
            yield Finding("goals", "warn", "found, without compute_reward: data=hindsight is not possible", fix)
