"""Acts in environments and records fragments: a plain class, in this process or inside a Ray actor.

All randomness of a fragment is derived from `(seed, stream, worker, fragment)`: two workers never share a stream, and
a fragment that starts with a reset can be computed again anywhere.
"""

from __future__ import annotations

import inspect
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv

from lightning_rl.envs.action_masks import ActionMasks
from lightning_rl.envs.creator import EnvCreator, autoreset_mode
from lightning_rl.errors import ConfigError, EnvApiError, EnvError, place_of
from lightning_rl.exploration import Actor
from lightning_rl.rollouts.acting_policy import ActingPolicy
from lightning_rl.rollouts.env_positions import NativePositions, ReplayedPositions
from lightning_rl.rollouts.env_restarts import EnvRestarts
from lightning_rl.rollouts.episodes import CutEpisode, Episode, EpisodeTracker, episode_ends
from lightning_rl.rollouts.fragments import (
    Rows,
    concat_steps,
    copy_arrays,
    describe_not_finite,
    drop_last_row,
    insert_final_obs,
    insert_reset_rows,
    is_finite,
    stack_masks,
    stack_steps,
    step_inputs,
    write_final_masks,
)
from lightning_rl.rollouts.logical_workers import split_evenly
from lightning_rl.rollouts.obs_bounds_check import ObsBoundsCheck
from lightning_rl.rollouts.recurrent_state import PolicyMemory
from lightning_rl.rollouts.worker_options import LONGEST_EPISODE
from lightning_rl.sample_batch import DEFAULT_POLICY, MultiAgentBatch, SampleBatch, env_steps, is_fragment

__all__ = ["BATCH_MODES", "DEFAULT_POLICY", "RolloutWorker", "has_several_policies", "info_of", "instantiate_policy"]

log = logging.getLogger(__name__)

BATCH_MODES = ("truncate_episodes", "complete_episodes")
EPISODE_HOOKS = ("on_reset", "on_episode_start", "on_episode_step", "on_episode_end", "on_sample_end")
WORKER_HOOKS = (*EPISODE_HOOKS, "on_postprocess_trajectory")  # the last one where workers make the rows to learn from


class RolloutWorker:
    """A policy acting in `num_envs` environments.

    Args:
        env: how to make the environments; anything that `EnvCreator` takes as `id` works too.
        policy: an object that acts: `compute_actions`, `env_actions`, `get_initial_state`, `seed_exploration`,
            `env_steps`; or a class, built from the environment's spaces and `policy_config` (`instantiate_policy`).
        num_envs: environments stepped together, ≥ 1.
        fragment_length: steps per environment in one sample, ≥ 1.
        batch_mode: "truncate_episodes" ends a sample after `fragment_length` rows; "complete_episodes" starts with a
            reset and lets each environment finish the episode that it is in after `fragment_length` rows, so samples
            hold whole episodes only.
        count_resets: whether the row of a reset, which is no experience, counts as one of the `fragment_length`; if
            not, a sample has at least `fragment_length` × `num_envs` rows of experience.
        vectorization: as `EnvCreator.make`.
        seed, stream, worker_index: the seeds of this worker are derived from them.
        logical_workers: how many workers the run has, which exploration and environments may depend on.
        explore: whether actions are sampled (training) or the policy's best (evaluation).
        callbacks: objects whose `on_episode_start/step/end` and `on_sample_end` are called here.
        mode: autoreset mode of sync and async environments; the recorded transitions do not depend on it.
        policy_config: of a policy that is given as a class.
        record_logp: whether samples have the column "action_logp", which off-policy algorithms do not read (a policy
            with `compute_actions` of its own decides by itself).
        max_env_restarts: how often one fragment is begun again, with new environments, when one of them has raised or
            given values that are not finite.
        max_episode_steps: longest episode of `run_episodes`; `None`: it waits until the environment ends one.
        wrap_env: wraps every new vector environment.
        postprocess: whether samples are what `policy.postprocess_trajectory` makes of a fragment, rows `[N, …]`;
            `None`: where the policy is given as a class, for loops written by hand.

    Raises:
        ValueError: a number is below 1, or a mode is unknown.
        ConfigError: the policy holds several, which `MultiAgentRolloutWorker` lets act.
        EnvError: an environment cannot be made.
    """

    as_remote: ClassVar[Callable[..., Any]]  # `worker_set.py` defines it, because its Ray actors import this file

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
        self.max_episode_steps = max_episode_steps
        self.stopping: Callable[[], bool] | None = None  # `WorkerSet.stop_when` sets it
        self._unread = {} if record_logp else {"logp": False}
        continues = stream == "rollout" and batch_mode == "truncate_episodes"  # episodes, from sample to sample
        replayable = continues and self.env_creator.reseeds
        make = partial(self.env_creator.make, num_envs, vectorization, mode, worker_index, logical_workers, replayable)
        self.restarts = EnvRestarts(self, make, max_env_restarts, wrap_env)
        self.env: VectorEnv[Any, Any, Any] = self.restarts.make()
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
        self._numbers: dict[str, list[float]] = {}  # of callbacks, since the last `get_metrics`
        self.fragment = 0  # number of the next fragment
        self.env_steps = 0  # rows of experience sampled so far
        self._needs_reset = True
        self._prepare_acting(logical_workers)

    def _prepare_acting(self, logical_workers: int) -> None:
        """Set what depends on how many policies act."""
        if has_several_policies(self.policy):
            raise ConfigError(
                f"{type(self.policy).__name__} holds several policies: use MultiAgentRolloutWorker, or "
                "make_rollout_worker, which chooses the class"
            )
        self._bounds_check = ObsBoundsCheck(
            self.env.single_observation_space, f"environment {self.env_creator.name!r} of worker {self.worker_index}"
        )
        actor = Actor(self.worker_index, logical_workers, self.num_envs, self.stream)
        self.episodes = EpisodeTracker(self.num_envs, self.same_step, self.hooks, self)
        self._memory = PolicyMemory(self.policy, self.num_envs)
        self._acting = ActingPolicy(self.policy, self._memory, actor)
        self._action_masks = ActionMasks(self.env.single_action_space, self.env_creator.name)
        self._reads_infos = getattr(self.policy, "reads_infos", False)
        self._has_masks = False  # whether an info has held one: from then on fragments have the column "action_mask"

    # -- sampling -----------------------------------------------------------------------------------------------------
    def sample(self) -> Any:
        """One fragment: `obs [T+1, B, *]`, everything else `[T, B, …]`; see `sample_batch.py` for the columns.

        With `postprocess`: the rows `[N, …]` that the policy learns from.

        Raises:
            EnvError: an environment raised, or gave values that are not finite, in each attempt; names the worker, the
                step and the environment.
        """
        fragment = self._retry(self._collect)
        self.fragment += 1
        self.env_steps += env_steps(fragment)
        self._check_bounds()
        for hook in self.hooks["on_sample_end"]:
            hook(worker=self, samples=fragment)
        self._add_running_returns(fragment)
        return self._postprocess(fragment) if self.postprocess else fragment

    def _retry(self, collect: Callable[[], Any]) -> Any:
        """Begin a fragment and call `collect`; both again if an environment fails.

        If the policy fails on an observation outside of its space, the environment is at fault.
        """

        def collect_or_blame() -> Any:
            try:
                return collect()
            except EnvError:
                raise
            except (IndexError, RuntimeError, ValueError) as error:
                if problem := self._describe_outside():
                    failed = f"the policy failed on it with {type(error).__name__}: {error}"
                    raise EnvApiError(f"{problem}; {failed}") from error
                raise

        return self.restarts.retry(self._begin_fragment, collect_or_blame)

    def _describe_outside(self) -> str:
        """Say which of the latest observations is outside of its space; "" if none is."""
        return self._bounds_check.describe(self._obs)

    def _check_bounds(self) -> None:
        if self.env_steps >= self._bounds_check.due:
            self._bounds_check.check(self._obs, env_steps=self.env_steps)

    def _add_running_returns(self, fragment: Any) -> None:
        self._acting.add_running_returns(fragment)

    def _postprocess(self, fragment: Any) -> Any:
        """The rows that the policy learns from."""
        return rows_of(self.policy, fragment)

    def run_episodes(self, count: int) -> list[tuple[float, int]]:
        """Play `count` whole episodes, the same number in each environment (the first get the rest), recording nothing.

        An episode that goes on after `max_episode_steps` is cut there and counts as it is (`was_cut`). Its environment
        then waits for the others; what is missing is played by all of them from a reset.

        Returns:
            (return, length) of each; of each pass in order of environment and then of time.
        """
        played: list[Episode] = []
        while len(played) < count:
            self.force_reset()
            quota = split_evenly(count - len(played), self.num_envs)
            played += self._retry(partial(self._play_episodes, quota))
            self.force_reset()
            self.fragment += 1
        return played

    def seconds_per_step(self, steps: int = 5) -> float:
        """Measure how long a step of `run_episodes` takes; the episodes that it plays next do not depend on this."""
        self.force_reset()
        seconds = self._retry(lambda: self._time_steps(steps))
        self.force_reset()
        return seconds

    def _time_steps(self, steps: int) -> float:
        self._play_step()  # the first one is slower
        started = time.perf_counter()
        for _ in range(steps):
            self._play_step()
        seconds = (time.perf_counter() - started) / steps
        self.episodes.pop_finished()
        return seconds

    def _play_episodes(self, quota: Sequence[int]) -> list[tuple[float, int]]:
        played: list[list[Episode]] = [[] for _ in quota]
        left = np.array(quota)  # episodes of each environment
        while np.count_nonzero(left):
            if self.stopping is not None and self.stopping():
                raise KeyboardInterrupt("stopped while episodes were played")
            self._play_step()
            for env, episode in self.episodes.pop_finished():
                if left[env]:
                    played[env].append(self._with_finite_return(env, episode))
                    left[env] -= 1
            if self.max_episode_steps is not None:
                for env in np.flatnonzero((self.episodes.lengths >= self.max_episode_steps) & (left > 0)).tolist():
                    played[env].append(self._with_finite_return(env, self._running_episode(env)))
                    left[env] = 0
        return [episode for episodes in played for episode in episodes]

    def _with_finite_return(self, env: int, episode: Episode) -> Episode:
        """The episode, after a check of its rewards by their sum.

        Raises:
            EnvError: one of them was NaN or infinite.
        """
        if not math.isfinite(episode[0]):
            raise EnvError(
                f"{self._where()}: an episode of sub-environment {env} returned {episode[0]} in {episode[1]} steps; "
                "expected finite rewards"
            )
        return episode

    def _running_episode(self, env: int) -> Episode:
        """Return and length, so far, of the episode that is running in an environment and is cut."""
        return CutEpisode((float(self.episodes.returns[env]), int(self.episodes.lengths[env])))

    def _play_step(self) -> None:
        """Step all environments once, recording nothing but their episodes' returns and lengths."""
        obs = copy_arrays(self._obs)
        if not is_finite(obs):
            raise EnvError(f"{self._where()}: an observation holds NaN or infinity; expected finite numbers")
        actions, state, _ = self._act(obs, self._find_masks())
        _, rewards, terminated, truncated, info = self._step(actions)
        ended = terminated | truncated
        if self._memory.active:
            self._memory.advance(state, actions, rewards)
        self._begin_episodes(ended)
        self.episodes.count(np.asarray(rewards)[None], ended[None], episode_ends(ended, info)[None])

    def force_reset(self) -> None:
        """Let the next sample start with a seeded reset; the running episodes are dropped."""
        self._needs_reset, self._saved = True, None

    def get_metrics(self) -> dict[str, Any]:
        """Returns and lengths of the episodes that ended since the last call, and what callbacks recorded."""
        episodes = [episode for _, episode in self.episodes.pop_finished()]
        return {
            "episode_returns": [ret for ret, _ in episodes],
            "episode_lengths": [length for _, length in episodes],
            **self._pop_numbers(),
        }

    def record_number(self, name: str, value: float) -> None:
        """Add a number to the list of that name that `get_metrics` gives as `numbers`, and DataModules as theirs."""
        self._numbers.setdefault(name, []).append(float(value))

    def _pop_numbers(self) -> dict[str, Any]:
        numbers, self._numbers = self._numbers, {}
        return {"numbers": numbers} if numbers else {}

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
    def get_policy(self, policy_id: str = DEFAULT_POLICY) -> Any:
        """The policy.

        Raises:
            ConfigError: the worker has no policy of that id.
        """
        if policy_id != DEFAULT_POLICY:
            raise ConfigError(f"policy_id={policy_id!r}: this worker has one policy, {DEFAULT_POLICY!r}")
        return self.policy

    def get_weights(self) -> dict[str, Any]:
        """The weights by policy id: `{"default_policy": …}`."""
        return {DEFAULT_POLICY: self.policy.get_weights()}

    def set_weights(self, weights: Mapping[str, Any], env_steps: int | None = None) -> None:
        """Act with these weights from now on.

        Args:
            weights: as `get_weights` gives them; or one policy's own.
            env_steps: environment steps of the learner, which exploration and schedules follow; `None` leaves the
                policy's own count as it is.
        """
        self.policy.set_weights(weights[DEFAULT_POLICY] if set(weights) == {DEFAULT_POLICY} else weights)
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
            `policy.learner.gradient_update(samples)`: the gradients, and what the learner needs beside them.
        """
        samples = self.sample()
        while not has_experience(samples):
            samples = self.sample()
        return self.policy.learner.gradient_update(samples, self.hooks["on_postprocess_trajectory"])

    def learn_on_batch(self, samples: SampleBatch) -> dict[str, float]:
        """Train this worker's policy on the samples, by a `learn_on_batch` of its own if it has one; its metrics."""
        learner = getattr(self.policy, "learner", None)
        return self.policy.learn_on_batch(samples) if learner is None else learner.update(samples)

    def apply(self, fn: Callable[[Any], Any]) -> Any:
        """`fn(worker)`, in the process of the worker."""
        return fn(self)

    # -- one fragment -------------------------------------------------------------------------------------------------
    def _begin_fragment(self) -> None:
        if getattr(self.policy, "training", True):
            self.policy.eval()
        self.policy.seed_exploration(self.restarts.seed())
        self._acting.begin_fragment()
        self._begin_or_continue_episodes()

    def _begin_or_continue_episodes(self) -> None:
        """Reset all environments, unless their episodes go on or come back from a checkpoint."""
        self._bring_back_episodes()
        if not self._needs_reset and self.batch_mode == "truncate_episodes":
            return
        self._obs, self._info = self._reset()
        self._needs_reset = False
        self.episodes.restart()
        self._just_ended = np.zeros(self.num_envs, dtype=bool)
        self._restart_acting()
        for hook in self.hooks["on_reset"]:
            hook(worker=self, obs=self._obs, info=self._info)

    def _restart_acting(self) -> None:
        """Every environment starts an episode."""
        self._has_masks = False
        self._acting.restart()

    def _running_episodes(self) -> dict[str, Any] | None:
        """What `_bring_back_episodes` reads; `None` if the environments cannot be brought back."""
        envs = None if self._positions is None else self._positions.state_dict(self.env, self._obs, self._info)
        if envs is None:
            return None
        return {
            "envs": envs,
            "tracker": self.episodes.state_dict(),
            "just_ended": torch.from_numpy(self._just_ended),
            **self._acting_state(),
        }

    def _acting_state(self) -> dict[str, Any]:
        """What the policies need to go on in the running episodes."""
        return {"has_masks": self._has_masks, **self._acting.state_dict()}

    def _load_acting_state(self, state: Mapping[str, Any]) -> None:
        self._has_masks = bool(state["has_masks"])
        self._acting.load_state_dict(state)

    def _bring_back_episodes(self) -> None:
        """Go on with the episodes of a checkpoint, if there are any and their environments come back."""
        saved, self._saved = self._saved, None
        if saved is None or self._positions is None:
            return
        try:
            restored = self._positions.restore(self.env, saved["envs"])
        except Exception as error:
            raise EnvError(
                f"{self._where()} raised {type(error).__name__} when it was brought back: {error}"
            ) from error
        self.episodes.load_state_dict(saved["tracker"])
        if not isinstance(restored, str):
            self._obs, self._info, played = restored
            restored = self.episodes.describe_difference(played)
        if restored:
            log.warning(
                "%s: its episodes begin anew, so that the resumed run is as good as the one that would have gone on, "
                "but not the same: %s",
                self._where(),
                restored,
            )
            return
        self._needs_reset = False
        self._just_ended = saved["just_ended"].numpy().copy()
        self._load_acting_state(saved)

    def _begin_episodes(self, ended: np.ndarray) -> None:
        """Reset memory and exploration noise of the environments whose next step is the first of an episode.

        Args:
            ended: bool `[B]`, whether the last step ended an episode.
        """
        starting, self._just_ended = (ended if self.same_step else self._just_ended), ended
        if not np.count_nonzero(starting):  # a sixth of the cost of `any`
            return
        if self._log is not None:
            self._log.begin(starting)
        self._start_episodes(starting)

    def _start_episodes(self, starting: np.ndarray) -> None:
        """The next step of the environments `starting`, bool `[B]`, is the first of an episode."""
        self._acting.start_episodes(starting)

    def _reset(self) -> tuple[Any, dict[str, Any]]:
        seeds = [self.restarts.seed(env) % 2**31 for env in range(self.num_envs)]
        seed: Any = seeds if self.has_several_envs else seeds[0]
        if self._log is not None:
            self._log.restart(seeds)
        try:
            return self.env.reset(seed=seed)
        except Exception as error:
            raise EnvError(
                f"{self._where()} raised {type(error).__name__} in reset(seed={seeds[0]}…): {error}{place_of(error)}"
            ) from error

    def _find_masks(self) -> np.ndarray | None:
        """The allowed actions `[B, n]` by the infos, from the first mask on; policies find those in observations.

        Raises:
            EnvApiError: a mask does not fit the action space, or forbids everything in a running episode.
        """
        finder = self._action_masks
        masks = finder.find_all(self._obs, self._info, self.num_envs, always=self._has_masks)
        self._has_masks = masks is not None
        seen = finder.find_inside(self._obs, self.num_envs) if masks is None else masks
        if seen is not None and np.count_nonzero(nothing := finder.forbid_all(seen) & ~self._just_ended):
            env = int(np.flatnonzero(nothing)[0])
            raise finder.refuse(seen[env], f"sub-environment {env}")
        return masks

    def _act(self, obs: Any, mask: np.ndarray | None) -> tuple[Any, Any, dict[str, Any]]:
        memory = self._memory
        infos = {"infos": [info_of(self._info, env) for env in range(self.num_envs)]} if self._reads_infos else {}
        return self._acting.act_of_policy(
            obs,
            memory.state,
            explore=self.explore,
            timestep=self.policy.env_steps,
            action_mask=mask,
            **memory.before,
            **self._unread,
            **infos,
        )

    def _step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        return self._step_envs(self.policy.env_actions(actions))

    def _step_envs(self, env_actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step the environments with actions in their own space."""
        try:
            self._obs, rewards, terminated, truncated, self._info = self.env.step(env_actions)
        except EnvApiError:
            raise
        except Exception as error:
            raise EnvError(
                f"{self._where()} raised {type(error).__name__} after actions {env_actions}: {error}{place_of(error)}"
            ) from error
        if self._log is not None:
            self._log.append(env_actions)
        return self._obs, rewards, terminated, truncated, self._info

    def _collect(self) -> SampleBatch:
        """Step the environments until the fragment is complete."""
        rows, memory = Rows(), self._memory
        has_memory = memory.active
        active = np.ones(self.num_envs, dtype=bool)
        whole = self.batch_mode == "complete_episodes"
        missing = self.fragment_length * self.num_envs  # rows until the fragment is long enough
        while True:
            missing -= self._count_rows()
            obs = copy_arrays(self._obs)
            mask = self._find_masks()
            if mask is not None:
                rows.masks.append(mask)
            actions, state, extra = self._act(obs, mask)
            rows.obs.append(obs)
            if has_memory:
                rows.memory.append(memory.columns())
            rows.actions.append(actions)
            next_obs, rewards, terminated, truncated, info = self._step(actions)
            ended = terminated | truncated
            for column, value in ((rows.rewards, rewards), (rows.terminated, terminated), (rows.truncated, truncated)):
                column.append(np.array(value))
            rows.active.append(active)
            rows.over.append(over := episode_ends(ended, info))
            for name, value in extra.items():
                rows.extra.setdefault(name, []).append(value)
            if has_memory:
                memory.advance(state, actions, rewards)
            if self.same_step:
                rows.next_obs.append(final_obs := insert_final_obs(copy_arrays(next_obs), info))
                if mask is not None:
                    final_info = info.get("final_info", {})
                    final = self._action_masks.find_all(final_obs, final_info, self.num_envs, always=True)
                    rows.final_masks.append(final)
                if has_memory:
                    rows.next_memory.append(memory.columns())
            self._begin_episodes(ended)
            for hook in self.hooks["on_episode_step"]:
                hook(worker=self, obs=next_obs, rewards=rewards, terminated=terminated, truncated=truncated, info=info)
            if missing <= 0:
                if not whole:
                    break
                active = active & ~over
                if not active.any():
                    break
                self._check_wait(len(rows.rewards) - self.fragment_length)
        rows.obs.append(copy_arrays(self._obs))
        if has_memory:
            rows.memory.append(memory.columns())
        return self._build_fragment(rows)

    def _count_rows(self) -> int:
        """How many rows of the next step count towards the length of the fragment."""
        if self.count_resets or self.same_step:
            return self.num_envs
        return self.num_envs - int(np.count_nonzero(self._just_ended))

    def _check_wait(self, steps: int) -> None:
        """After `steps` steps of waiting for ends of episodes: warn of many, and let a stop of the run end the wait."""
        if steps == LONGEST_EPISODE:
            log.warning(
                "%s: batch_mode=complete_episodes waits for episodes that have not ended after %s steps: set "
                "env.max_episode_steps=1000, say, or workers.batch_mode=truncate_episodes",
                self._where(),
                f"{steps:,}",
            )
        if steps >= LONGEST_EPISODE and self.stopping is not None and self.stopping():
            raise KeyboardInterrupt("stopped while the ends of episodes were waited for")

    def _build_fragment(self, rows: Rows) -> SampleBatch:
        """The rows as a fragment in the common form; counts them into the episodes."""
        terminated, truncated = concat_steps(rows.terminated), concat_steps(rows.truncated)
        active = concat_steps(rows.active)
        ended, rewards = terminated | truncated, concat_steps(rows.rewards)
        experience, steps = self.episodes.count(rewards, ended & active, concat_steps(rows.over) & active)
        valid = active & experience
        fragment = SampleBatch(
            actions=stack_steps(rows.actions),
            rewards=torch.from_numpy(np.where(valid, rewards, 0).astype(np.float32)),
            terminated=torch.from_numpy(terminated & valid),
            truncated=torch.from_numpy(truncated & valid),
            valid=torch.from_numpy(valid),
            t=torch.from_numpy(steps),
            **{name: stack_steps(values) for name, values in rows.extra.items()},
        )
        for name, column in step_inputs(rows.obs, rows.memory).items():
            fragment[name] = column
        if rows.masks:
            fragment["action_mask"] = stack_masks(rows.masks, len(valid))
        if problem := describe_not_finite(fragment, rewards):
            raise EnvError(f"{self._where()}: {problem}; expected finite numbers")
        if self.same_step:
            following = step_inputs(rows.next_obs, rows.next_memory)
            for name in following:
                fragment[name] = drop_last_row(fragment[name])
            before, fragment = fragment, insert_reset_rows(fragment, following)
            if rows.masks:
                write_final_masks(fragment, before, stack_masks(rows.final_masks, len(valid)))
        return fragment

    def _where(self) -> str:
        place = f"(fragment {self.fragment}, seed {self.seed})"
        return f"environment {self.env_creator.name!r} of worker {self.worker_index} {place}"


def info_of(info: Mapping[str, Any], env: int) -> dict[str, Any]:
    """The info of one environment, of Gymnasium's info of a vector of them."""
    found: dict[str, Any] = {}
    for name, values in info.items():
        given = info.get(f"_{name}")
        if name.startswith("_") and name.removeprefix("_") in info:
            continue
        if given is None or given[env]:
            found[name] = info_of(values, env) if isinstance(values, dict) else values[env]
    return found


def has_several_policies(policy: Any) -> bool:
    """Whether the policy is a container of several, with the attributes `policies` and `mapping`."""
    return hasattr(policy, "policies") and hasattr(policy, "mapping")


def rows_of(policy: Any, fragment: SampleBatch, others: Mapping[str, Any] | None = None) -> SampleBatch:
    """The rows `[N, …]` that a policy learns from, of a fragment `[T, B, …]`.

    Args:
        policy: with a learner, or without one if it is written from scratch.
        fragment: of the policy.
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
    return bool(samples.valid.any()) if is_fragment(samples) else samples.count > 0


def instantiate_policy(policy: Any, env: EnvCreator, config: Mapping[str, Any] | None) -> Any:
    """The policy of a worker: the given object, or one built from the given class and the environment's spaces.

    Args:
        policy: an object that acts, or a class. A class whose constructor has a parameter `config` without a default,
            as RLlib's have, is called with (observation space, action space, config); another one gets the config as
            keywords.
        env: gives the spaces; the environment is checked.
        config: for the constructor.

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
