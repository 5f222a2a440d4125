"""Acts in environments and records fragments: a plain class, in this process or inside a Ray actor.

All randomness of a fragment is derived from `(seed, stream, worker, fragment)`: two workers never share a stream, and
a fragment that starts with a reset can be computed again anywhere.
"""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from timeit import timeit
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv

from lightning_rl.envs.creator import EnvCreator, autoreset_mode
from lightning_rl.envs.multi_agent.packed_env import innermost
from lightning_rl.errors import ConfigError, EnvApiError, EnvError, did_you_mean, place_of
from lightning_rl.learning.gradients import MultiAgentGradientUpdate
from lightning_rl.rollouts.env_positions import NativePositions, ReplayedPositions
from lightning_rl.rollouts.env_restarts import EnvRestarts
from lightning_rl.rollouts.episodes import Episode, EpisodeTracker, episode_ends
from lightning_rl.rollouts.fragments import EnvSteps, concat_steps
from lightning_rl.rollouts.logical_workers import split_evenly
from lightning_rl.rollouts.several_agents import SeveralAgents
from lightning_rl.rollouts.single_agent import SingleAgent
from lightning_rl.rollouts.worker_options import LONGEST_EPISODE
from lightning_rl.sample_batch import (
    DEFAULT_POLICY,
    AnyBatch,
    Fragment,
    MultiAgentBatch,
    SampleBatch,
    env_steps,
    other_agent_batches,
)

__all__ = ["BATCH_MODES", "RolloutWorker", "instantiate_policy"]

log = logging.getLogger(__name__)

BATCH_MODES = ("truncate_episodes", "complete_episodes")
EPISODE_HOOKS = ("on_reset", "on_episode_start", "on_episode_step", "on_episode_end", "on_sample_end")
# The first of these two is called where workers make the rows to learn from, the second in the learner's process.
WORKER_HOOKS = (*EPISODE_HOOKS, "on_postprocess_trajectory", "on_worker_report")


class RolloutWorker:
    """One policy, or several, acting in `num_envs` environments.

    A policy is asked once a step for all its lanes: a lane is an environment; or an agent of one, where the
    environments have several.

    Args:
        env: how to make the environments; anything that `EnvCreator` takes as `id` works too.
        policy: an object that acts: `compute_actions`, `env_actions`, `get_initial_state`, `seed_exploration`,
            `env_steps`; or a class, built from the environment's spaces and `policy_config` (`instantiate_policy`).
            A container of several has `policies` (id → policy) and `mapping` (`SeveralAgents`).
        num_envs: environments stepped together, ≥ 1.
        fragment_length: steps per environment in one sample, ≥ 1.
        batch_mode: "truncate_episodes" ends a sample after `fragment_length` rows; "complete_episodes" starts with a
            reset and lets each environment finish the episode that it is in after `fragment_length` rows, so samples
            hold whole episodes only.
        count_resets: whether the row of a reset, which is not an experience, counts as one of the `fragment_length`; if
            not, a sample has at least `fragment_length` × `num_envs` rows of experience.
        vectorization: see `EnvCreator.make`.
        seed, stream, worker_index: the seeds of this worker are derived from them.
        logical_workers: how many workers the run has, which exploration and environments may depend on.
        explore: whether actions are sampled (training) or the policy's best (evaluation).
        callbacks: objects whose `on_episode_start/step/end` and `on_sample_end` are called here.
        mode: autoreset mode of sync and async environments; the recorded transitions do not depend on it. Environments
            with several agents have NEXT_STEP.
        policy_config: the config of a policy that is given as a class.
        record_logp: whether samples have the column "action_logp", which off-policy algorithms do not read (a policy
            with `compute_actions` of its own decides by itself).
        max_env_restarts: how often one fragment is begun again, with new environments, when one of them has raised or
            given values that are not finite.
        max_episode_steps: longest episode of `run_episodes`; `None`: it waits until the environment ends one.
        wrap_env: wraps every new vector environment.
        postprocess: whether samples are what `policy.postprocess_trajectory` makes of a fragment, rows `[N, …]`;
            `None`: where the policy is given as a class, for loops written by hand.

    Attributes:
        agents: the lanes, and how they are in the environments' arrays.
        obs, info: the observation and info of the latest reset or step.
        missing_rows: rows until the fragment is long enough, after the latest step.
        just_ended: bool `[B]`, whether the latest step ended an episode, and the next one is the reset.
        reports: what callbacks send to the learner's process with the sample, where their `on_worker_report` gets it;
            `None`: the worker is in that process.
        episodes_left: int `[B]`, how many episodes `run_episodes` still has to play in each environment; otherwise
            `None`.

    Raises:
        ValueError: a number is below 1, or a mode is unknown.
        ConfigError: the policies of several agents do not fit them.
        EnvError: an environment cannot be made, or has one agent where there are several policies.
    """

    obs: Any
    info: dict[str, Any]
    just_ended: np.ndarray
    missing_rows: int

    def __init__(
        self,
        env: EnvCreator | Any,
        policy: Any,
        *,
        num_envs: int = 1,
        fragment_length: int = 128,
        batch_mode: str = "truncate_episodes",
        count_resets: bool = True,
        vectorization: str = "auto",
        seed: int = 0,
        stream: str = "rollout",
        worker_index: int = 0,
        logical_workers: int = 1,
        explore: bool = True,
        callbacks: Sequence[Any] = (),
        mode: AutoresetMode = AutoresetMode.NEXT_STEP,
        policy_config: Mapping[str, Any] | None = None,
        postprocess: bool | None = None,
        record_logp: bool = True,
        max_env_restarts: int = 3,
        max_episode_steps: int | None = None,
        wrap_env: Callable[[VectorEnv[Any, Any, Any]], VectorEnv[Any, Any, Any]] | None = None,
    ) -> None:
        if num_envs < 1 or fragment_length < 1:
            raise ValueError(f"num_envs={num_envs}, fragment_length={fragment_length}: both must be at least 1")
        if batch_mode not in BATCH_MODES:
            raise ValueError(f"batch_mode={batch_mode!r} is unknown; choose one of {', '.join(BATCH_MODES)}")
        self.env_creator = EnvCreator.from_spec(env)
        self.postprocess = isinstance(policy, type) if postprocess is None else postprocess
        self.policy = policy = instantiate_policy(policy, self.env_creator, policy_config)
        self.num_envs, self.fragment_length, self.batch_mode = num_envs, fragment_length, batch_mode
        self.count_resets = count_resets
        self.seed, self.stream, self.worker_index, self.explore = seed, stream, worker_index, explore
        self.logical_workers, self.record_logp, self.max_episode_steps = logical_workers, record_logp, max_episode_steps
        self.stopping: Callable[[], bool] | None = None  # `WorkerSet.stop_when` sets it
        continues = stream == "rollout" and batch_mode == "truncate_episodes"  # episodes, from sample to sample
        replayable = continues and self.env_creator.reseeds

        def make() -> VectorEnv[Any, Any, Any]:
            env = self.env_creator.make(num_envs, vectorization, mode, worker_index, logical_workers, replayable)
            return env if wrap_env is None else wrap_env(env)

        self.restarts, self.env = EnvRestarts(self, make, max_env_restarts), make()
        self.has_several_envs = hasattr(self.env.unwrapped, "env_fns")  # sync and async; a native one is one object
        replayed = replayable and self.has_several_envs
        self._positions = (ReplayedPositions() if replayed else NativePositions()) if continues else None
        self._log = None if self._positions is None else self._positions.log
        self._saved: Mapping[str, Any] | None = None  # episodes of a checkpoint, which the next fragment continues
        self.same_step = autoreset_mode(self.env) == AutoresetMode.SAME_STEP
        self.hooks: dict[str, list[Callable[..., None]]] = {
            name: [getattr(callback, name) for callback in callbacks if hasattr(callback, name)]
            for name in (*WORKER_HOOKS, "on_worker_stop")
        }
        self._numbers: dict[str, list[Any]] = {}  # of callbacks, since the last `get_metrics`
        self.reports: list[Any] | None = None
        self.fragment = 0  # number of the next fragment
        self.env_steps = 0  # rows of experience sampled so far
        self.episodes_left: np.ndarray | None = None
        self._needs_reset = True
        self.agents = SeveralAgents(self) if policy.agents else SingleAgent(self)
        self.episodes = EpisodeTracker(num_envs, self.same_step, self.hooks, self, self.agents.names)

    @classmethod
    def as_remote(cls, **options: Any) -> Any:
        """The Ray actor class of this worker: `RolloutWorker.as_remote(num_cpus=1).remote(env, policy, …)`.

        Args:
            options: Ray's.
        """
        from lightning_rl.rollouts.ray import actors

        return actors.as_remote(cls, **options)

    # -- sampling -----------------------------------------------------------------------------------------------------
    def sample(self) -> Any:
        """One fragment: `obs [T+1, L, *]`, everything else `[T, L, …]`; see `sample_batch.py` for the columns.

        Of several policies, a `MultiAgentBatch` with a fragment of each. With `postprocess`: the rows `[N, …]` that
        each policy learns from.

        Raises:
            EnvError: an environment raised, or gave values that are not finite, in each attempt; names the worker, the
                step and the environment.
        """
        samples = self.restarts.retry(self._begin_fragment, self._collect)
        self.fragment += 1
        self.env_steps += env_steps(samples)
        for lanes in self.agents.lanes:
            if self.env_steps >= lanes.bounds_check.due:
                lanes.bounds_check.check(*self.agents.observed(lanes), env_steps=self.env_steps)
            lanes.add_running_returns(samples)
        for hook in self.hooks["on_sample_end"]:
            hook(worker=self, samples=samples)
        return self.rows_of(samples) if self.postprocess else samples

    def describe_outside(self) -> str:
        """Say which of the latest observations is outside of its space; "" if none is."""
        problems = (lanes.bounds_check.describe(*self.agents.observed(lanes)) for lanes in self.agents.lanes)
        return next(filter(None, problems), "")

    def rows_of(self, samples: AnyBatch) -> AnyBatch:
        """The rows `[N, …]` that each policy learns from, of the fragments of a sample."""
        if isinstance(samples, SampleBatch):
            return rows_of(self.policy, samples)
        rows = {
            policy_id: rows_of(self.policies[policy_id], part, other_agent_batches(samples, self.policies, policy_id))
            for policy_id, part in samples.items()
        }
        return MultiAgentBatch(rows, samples.env_steps)

    def run_episodes(self, count: int) -> list[Episode]:
        """Play `count` whole episodes, the same number in each environment (the first get the rest), recording nothing.

        An episode that continues after `max_episode_steps` is cut there and counts as it is (`was_cut`). Its
        environment then waits for the others; what is missing is played by all of them from a reset.

        Returns:
            (return, length) of each; of each pass in order of environment and then of time.
        """
        played: list[Episode] = []
        while len(played) < count:
            self.force_reset()
            quota = split_evenly(count - len(played), self.num_envs)
            played += self.restarts.retry(self._begin_fragment, partial(self._play_episodes, quota))
            self.force_reset()
            self.fragment += 1
        return played

    def seconds_per_step(self, steps: int = 5) -> float:
        """Measure how long a step of `run_episodes` takes; the episodes that it plays next do not depend on this."""

        def play() -> float:
            self._play_step()  # the first one is slower
            return timeit(self._play_step, number=steps) / steps

        self.force_reset()
        seconds = self.restarts.retry(self._begin_fragment, play)
        self.episodes.pop_finished()
        self.force_reset()
        return seconds

    def _play_episodes(self, quota: Sequence[int]) -> list[Episode]:
        played: list[list[Episode]] = [[] for _ in quota]
        left = self.episodes_left = np.array(quota)
        while np.count_nonzero(left):
            if self.stopping is not None and self.stopping():
                raise KeyboardInterrupt("stopped while episodes were played")
            self._call_step_hooks(*self._play_step())
            for env, episode in self.episodes.pop_finished():
                if left[env]:
                    played[env].append(self._with_finite_return(env, episode))
                    left[env] -= 1
            if self.max_episode_steps is not None:
                for env in np.flatnonzero((self.episodes.lengths >= self.max_episode_steps) & (left > 0)).tolist():
                    episode = self.episodes.episode(env, self.agents.policy_ids(env), cut=True)
                    played[env].append(self._with_finite_return(env, episode))
                    left[env] = 0
        return [episode for episodes in played for episode in episodes]

    def _with_finite_return(self, env: int, episode: Episode) -> Episode:
        """The episode, after a check of its rewards by their sum.

        Raises:
            EnvError: one of them was NaN or infinite.
        """
        if not math.isfinite(episode[0]):
            raise EnvError(
                f"{self.where()}: an episode of sub-environment {env} returned {episode[0]} in {episode[1]} steps; "
                "expected finite rewards"
            )
        return episode

    def _play_step(self) -> tuple[Any, Any, Any]:
        """Step all environments once, recording nothing but their episodes' returns and lengths; as `_step`."""
        rewards, terminated, truncated = self._step(self.agents.act(None))
        ended = terminated | truncated
        self.agents.end_step(rewards)
        self._begin_episodes(ended)
        self.agents.count(np.asarray(rewards)[None], ended[None], episode_ends(ended, self.info)[None])
        return rewards, terminated, truncated

    def force_reset(self) -> None:
        """Let the next sample start with a seeded reset; the running episodes are dropped."""
        self._needs_reset, self._saved = True, None

    def get_metrics(self) -> dict[str, Any]:
        """Returns and lengths of the episodes that ended since the last call, and what callbacks recorded ("numbers").

        In a process of its own also "reports".

        With several policies also "policy_returns": policy id → mean return of its agents, an entry for each episode in
        which it acted; and "agent_returns": agent → (its policy, its return), for each episode.
        """
        episodes = [episode for _, episode in self.episodes.pop_finished()]
        metrics: dict[str, Any] = {
            "episode_returns": [ret for ret, _ in episodes],
            "episode_lengths": [length for _, length in episodes],
        }
        if self.policy.agents:
            by_policy: dict[str, list[float]] = {}
            for policy_id, value in (pair for episode in episodes for pair in episode.by_policy.items()):
                by_policy.setdefault(policy_id, []).append(value)
            metrics |= {"policy_returns": by_policy, "agent_returns": [episode.by_agent for episode in episodes]}
        if self._numbers:
            metrics["numbers"], self._numbers = self._numbers, {}
        if self.reports:
            metrics["reports"], self.reports = self.reports, []
        return metrics

    def record_number(self, name: str, value: float) -> None:
        """Add a number to the list of that name that `get_metrics` gives as `numbers`, and DataModules as theirs."""
        self.record_value(name, float(value))

    def record_value(self, name: str, value: Any) -> None:
        """As `record_number`, of anything that can be pickled."""
        self._numbers.setdefault(name, []).append(value)

    def describe_loss(self) -> str:
        """Say what a run that resumes from this worker's state loses; "" if nothing."""
        return "" if self._positions is None else self._positions.describe_loss(self.env)

    def position(self) -> dict[str, int]:
        """The number of the next fragment, and env steps: what a worker that begins with a reset has to know."""
        return {"fragment": self.fragment, "env_steps": self.env_steps}

    def start_at(self, position: Mapping[str, int]) -> None:
        """Continue with the fragment of that number, from a reset."""
        self.fragment, self.env_steps = position["fragment"], position["env_steps"]
        self.force_reset()

    def state_dict(self) -> dict[str, Any]:
        """The position, and the running episodes where they can be brought back; plain data and tensors."""
        return {**self.position(), "episodes": self._saved if self._needs_reset else self._running_episodes()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue with the fragment of that number, and with the episodes that ran then."""
        self.start_at(state)
        self._saved = state.get("episodes")

    def end_recording(self) -> None:
        """Let recorders of samples write what they hold; safe to call again."""
        for hook in self.hooks["on_worker_stop"]:
            hook(worker=self)

    def stop(self) -> None:
        """End recording, and close the environments."""
        self.end_recording()
        self.env.close()

    # -- weights, gradients, learning ---------------------------------------------------------------------------------
    @property
    def policies(self) -> Mapping[str, Any]:
        """The policies by id; one alone is `DEFAULT_POLICY`."""
        policies: Mapping[str, Any] = self.policy.policies
        return policies

    def get_policy(self, policy_id: str | None = None) -> Any:
        """The policy of that id; `None`: the one policy, or the container of all.

        Raises:
            ConfigError: the worker has no policy of that id.
        """
        if policy_id is None:
            return self.policy
        if policy_id not in self.policies:
            known = [*self.policies]
            raise ConfigError(f"no policy {policy_id!r}.{did_you_mean(policy_id, known)} Policies: {', '.join(known)}")
        return self.policies[policy_id]

    def get_weights(self) -> dict[str, Any]:
        """The weights by policy id; of one policy `{"default_policy": …}`."""
        return {policy_id: policy.get_weights() for policy_id, policy in self.policies.items()}

    def set_weights(self, weights: Mapping[str, Any], env_steps: int | None = None) -> None:
        """Act with these weights from now on.

        Args:
            weights: a result of `get_weights`, or the weights of the one policy.
            env_steps: environment steps of the learner, which exploration and schedules follow; `None` leaves the
                policy's own count as it is.
        """
        by_id = not self.policy.agents and set(weights) == {DEFAULT_POLICY}
        self.policy.set_weights(weights[DEFAULT_POLICY] if by_id else weights)
        if env_steps is not None:
            self.policy.env_steps = env_steps

    def compute_gradients(self, samples: SampleBatch) -> tuple[Any, dict[str, float]]:
        """Gradients on these samples, and metrics; the optimizer does not step."""
        return self.policy.compute_gradients(samples)

    def apply_gradients(self, gradients: Any) -> None:
        """Step the optimizer with gradients, perhaps those of another worker."""
        self.policy.apply_gradients(gradients)

    def contribute(self) -> Any:
        """Sample, and compute the gradients on the sample.

        Returns:
            `policy.learner.gradient_update(samples)`: the gradients, and what the learner needs beside them. Of several
            policies a `MultiAgentGradientUpdate`, of those that learn and have experience.
        """
        samples = self.sample()
        while not has_experience(samples):
            samples = self.sample()
        hooks = self.hooks["on_postprocess_trajectory"]
        if isinstance(samples, SampleBatch):
            return self.policy.learner.gradient_update(samples, hooks)
        updates, trained = {}, getattr(self.policy, "policies_to_train", self.policies)
        for policy_id, part in samples.items():
            if policy_id in trained and has_experience(part):
                learner = self.policies[policy_id].learner
                with learner.beside(other_agent_batches(samples, self.policies, policy_id)):
                    updates[policy_id] = learner.gradient_update(part, hooks)
        return MultiAgentGradientUpdate(updates, samples.env_steps, samples.agent_steps)

    def learn_on_batch(self, samples: SampleBatch) -> dict[str, float]:
        """Train this worker's policy on the samples, by its own `learn_on_batch` if it has one; its metrics."""
        learner = getattr(self.policy, "learner", None)
        return self.policy.learn_on_batch(samples) if learner is None else learner.update(samples)

    def apply(self, fn: Callable[[Any], Any]) -> Any:
        """`fn(worker)`, in the process of the worker."""
        return fn(self)

    def for_policy(self, fn: Callable[[Any], Any], policy_id: str = DEFAULT_POLICY) -> Any:
        """`fn(policy)`, in the process of the worker."""
        return fn(self.get_policy(policy_id))

    def foreach_env(self, fn: Callable[[Any], Any]) -> list[Any]:
        """`fn(env)` of every environment, unwrapped, results in order: `lambda env: env.set_task(2)`, say.

        What it changes in them is not a part of checkpoints.

        Raises:
            ConfigError: the environments are one object, or in their own processes.
        """
        envs = getattr(self.env.unwrapped, "envs", None)
        if envs is None:
            raise ConfigError(
                f"foreach_env needs environments that are objects of the worker's process, not {self.env.unwrapped}: "
                "set workers.vectorization=sync"
            )
        return [fn(innermost(env)) for env in envs]

    # -- one fragment -------------------------------------------------------------------------------------------------
    def _begin_fragment(self) -> None:
        """Begin the lanes' records, and reset all environments, unless episodes continue or come from a checkpoint."""
        self.episodes_left = None
        for policy in (self.policy, *self.policies.values()):  # each enters train mode by itself when it learns
            if getattr(policy, "training", True):
                policy.eval()
        if self.agents.begin_fragment():
            self._needs_reset = True
        self.policy.seed_exploration(self.restarts.seed())
        for lanes in self.agents.lanes:
            lanes.begin_fragment()
        saved, self._saved = self._saved, None
        if saved is not None:
            self._bring_back_episodes(saved)
        if not self._needs_reset and self.batch_mode == "truncate_episodes":
            return
        self.obs, self.info = self._reset()
        self._needs_reset = False
        self.episodes.restart()
        self.just_ended = np.zeros(self.num_envs, dtype=bool)
        self.agents.restart()
        for lanes in self.agents.lanes:
            lanes.restart()
        for hook in self.hooks["on_reset"]:
            hook(worker=self, obs=self.obs, info=self.info)

    def _running_episodes(self) -> dict[str, Any] | None:
        """What `_bring_back_episodes` reads; `None` if the environments cannot be brought back."""
        envs = None if self._positions is None else self._positions.state_dict(self.env, self.obs, self.info)
        if envs is None:
            return None
        return {
            "envs": envs,
            "tracker": self.episodes.state_dict(),
            "just_ended": torch.from_numpy(self.just_ended),
            "lanes": {lanes.policy_id: lanes.state_dict() for lanes in self.agents.lanes},
            **self.agents.state_dict(),
        }

    def _bring_back_episodes(self, saved: Mapping[str, Any]) -> None:
        """Go on with the episodes of a checkpoint, if their environments come back."""
        if self._positions is None:
            return
        try:
            restored = self._positions.restore(self.env, saved["envs"])
        except Exception as error:
            raise EnvError(f"{self.where()} raised {type(error).__name__} when it was brought back: {error}") from error
        self.episodes.load_state_dict(saved["tracker"])
        if not isinstance(restored, str):
            self.obs, self.info, played = restored
            restored = self.episodes.describe_difference(played)
        if restored:
            log.warning(
                "%s: its episodes start from scratch: the resumed run is as good as the one that would have gone on, "
                "but not the same: %s",
                self.where(),
                restored,
            )
            return
        self._needs_reset = False
        self.just_ended = saved["just_ended"].numpy().copy()
        self.agents.load_state_dict(saved)
        for lanes in self.agents.lanes:
            lanes.load_state_dict(saved["lanes"][lanes.policy_id])

    def _begin_episodes(self, ended: np.ndarray) -> None:
        """Reset memory and exploration noise of the environments whose next step is the first of an episode.

        Args:
            ended: bool `[B]`, whether the last step ended an episode.
        """
        starting, self.just_ended = (ended if self.same_step else self.just_ended), ended
        if not np.count_nonzero(starting):  # a sixth of the cost of `any`
            return
        if self._log is not None:
            self._log.begin(starting)
        self.agents.start_episodes(starting)
        for lanes in self.agents.lanes:
            lanes.start_episodes(starting)

    def _reset(self) -> tuple[Any, dict[str, Any]]:
        seeds = [self.restarts.seed(env) % 2**31 for env in range(self.num_envs)]
        seed: Any = seeds if self.has_several_envs else seeds[0]
        if self._log is not None:
            self._log.restart(seeds)
        try:
            return self.env.reset(seed=seed)
        except EnvApiError:
            raise
        except Exception as error:
            raise EnvError(
                f"{self.where()} raised {type(error).__name__} in reset(seed={seeds[0]}…): {error}{place_of(error)}"
            ) from error

    def _step(self, actions: Any) -> tuple[Any, Any, Any]:
        """Step the environments with actions in their own space; rewards, terminated and truncated."""
        try:
            self.obs, rewards, terminated, truncated, self.info = self.env.step(actions)
        except EnvApiError:
            raise
        except Exception as error:
            raise EnvError(
                f"{self.where()} raised {type(error).__name__} after actions {actions}: {error}{place_of(error)}"
            ) from error
        if self._log is not None:
            self._log.append(actions)
        return rewards, terminated, truncated

    def _collect(self) -> AnyBatch:
        """Step the environments until the fragment is complete."""
        agents = self.agents
        recorded: tuple[list[np.ndarray], ...] = ([], [], [], [], [])  # rewards, terminated, truncated, over, active
        active = np.ones(self.num_envs, dtype=bool)
        whole = self.batch_mode == "complete_episodes"
        self.missing_rows = self.fragment_length * self.num_envs
        while True:
            self.missing_rows -= self._count_rows()
            rewards, terminated, truncated = self._step(agents.act(active))
            ended = terminated | truncated
            over = episode_ends(ended, self.info)
            for column, value in zip(recorded, (rewards, terminated, truncated, over, active), strict=True):
                column.append(np.array(value))
            agents.end_step(rewards)
            self._begin_episodes(ended)
            self._call_step_hooks(rewards, terminated, truncated)
            if self.missing_rows <= 0:
                if not whole:
                    break
                active = active & ~over
                if not active.any():
                    break
                self._check_wait(len(recorded[0]) - self.fragment_length)
        agents.record_last()
        rewards, terminated, truncated, over, active = map(concat_steps, recorded)
        experience, t = agents.count(rewards, (terminated | truncated) & active, over & active)
        return agents.build(EnvSteps(rewards, terminated, truncated, active, experience, t))

    def _call_step_hooks(self, rewards: Any, terminated: Any, truncated: Any) -> None:
        for hook in self.hooks["on_episode_step"]:
            given = {"rewards": rewards, "terminated": terminated, "truncated": truncated}
            hook(worker=self, obs=self.obs, info=self.info, **given)

    def _count_rows(self) -> int:
        """How many rows of the next step count towards the length of the fragment."""
        if self.count_resets or self.same_step:
            return self.num_envs
        return self.num_envs - int(np.count_nonzero(self.just_ended))

    def _check_wait(self, steps: int) -> None:
        """After `steps` steps of waiting for ends of episodes: warn of many, and let a stop of the run end the wait."""
        if steps == LONGEST_EPISODE:
            log.warning(
                "%s: batch_mode=complete_episodes waits for episodes that have not ended after %s steps: set "
                "env.max_episode_steps=1000, say, or workers.batch_mode=truncate_episodes",
                self.where(),
                f"{steps:,}",
            )
        if steps >= LONGEST_EPISODE and self.stopping is not None and self.stopping():
            raise KeyboardInterrupt("stopped while the ends of episodes were waited for")

    def where(self) -> str:
        """The environments, the worker and the fragment, in messages."""
        place = f"(fragment {self.fragment}, seed {self.seed})"
        return f"environment {self.env_creator.name!r} of worker {self.worker_index} {place}"


def rows_of(policy: Any, fragment: SampleBatch, others: Mapping[str, Any] | None = None) -> SampleBatch:
    """The rows `[N, …]` that a policy learns from, of a fragment `[T, B, …]`.

    Args:
        policy: a policy with a learner, or one written from scratch.
        fragment: the fragment of the policy.
        others: `other_agent_batches`; `None`: no other policies act in the environments.
    """
    learner = getattr(policy, "learner", None)
    if learner is None:
        more = () if others is None else (others,)
        return policy.postprocess_trajectory(fragment, *more)
    with learner.beside(others):
        return learner.rows_of(fragment)


def has_experience(samples: SampleBatch | MultiAgentBatch) -> bool:
    """Whether a sample has rows of experience; a fragment of one step may hold nothing but resets."""
    if isinstance(samples, MultiAgentBatch):
        return any(has_experience(batch) for _, batch in samples.items())
    return bool(samples.valid.any()) if isinstance(samples, Fragment) else samples.count > 0


def instantiate_policy(policy: Any, env: EnvCreator, config: Mapping[str, Any] | None) -> Any:
    """The policy of a worker: the given object, or one built from the given class and the environment's spaces.

    Args:
        policy: an object that acts, or a class. A class whose constructor has a parameter `config` without a default,
            as RLlib's have, is called with (observation space, action space, config); another one gets the config as
            keywords.
        env: gives the spaces; the environment is checked.
        config: arguments of the constructor.

    Raises:
        ConfigError: the constructor does not take this.
        EnvError: the environment cannot be made, or breaks the Gymnasium API.
    """
    if not isinstance(policy, type):
        if config is not None:
            raise ConfigError(f"policy_config={dict(config)!r} with a policy that is built already: pass its class")
        return policy
    parameters = inspect.signature(policy).parameters
    takes_config = "config" in parameters and parameters["config"].default is inspect.Parameter.empty
    arguments, keywords = ((dict(config or {}),), {}) if takes_config else ((), dict(config or {}))
    try:
        inspect.signature(policy).bind(None, None, *arguments, **keywords)
    except TypeError as error:
        raise ConfigError(
            f"policy {policy.__name__}: {error}; its constructor is called with (observation_space, action_space, "
            "config), or with policy_config as keywords"
        ) from error
    return policy(*env.spaces(), *arguments, **keywords)
