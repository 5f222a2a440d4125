"""RLlib's policies: its methods, its names of arguments and its forms of `loss` and `postprocess_trajectory`.

A class that derives from `TorchPolicy` or `Policy` may define these two as RLlib has them, `loss(self, model,
dist_class, train_batch)` and `postprocess_trajectory(self, sample_batch, other_agent_batches=None, episode=None)`, or
as this package has them. Which form a method has is seen from the number of its arguments.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import Space, spaces
from gymnasium.vector.utils import concatenate, create_empty_array
from torch import Tensor

from lightning_rl import policies, sample_batch
from lightning_rl.distributed import sum_over_ranks
from lightning_rl.errors import ConfigError
from lightning_rl.exploration import Exploration, make_exploration
from lightning_rl.fast_torch import in_eval_mode
from lightning_rl.learning.metrics import Metrics, as_tensors, means
from lightning_rl.learning.policy_optimizer import PolicyOptimizer
from lightning_rl.models.catalog import ModelCatalog, model_config
from lightning_rl.models.distributions.base import DistFactory
from lightning_rl.models.model import InputDict
from lightning_rl.policies.policy import OUTPUT_READERS, VERBS
from lightning_rl.rllib.build_policy import build_policy
from lightning_rl.rllib.episode_records import EpisodeRecords
from lightning_rl.rllib.function_optimizer import FunctionOptimizer
from lightning_rl.rllib.function_policy import (
    BatchModel,
    act_by_functions,
    checked_model,
    loss_and_metrics,
    settings_of,
    td_errors_of,
)
from lightning_rl.rllib.keys import classic_policy_config, policy_keywords
from lightning_rl.rllib.local_replay_buffer import call_buffer
from lightning_rl.rllib.sample_batch import SampleBatch
from lightning_rl.rllib.trajectories import fragment_of_trajectory, postprocess_trajectories, takes_episode, tensor_rows
from lightning_rl.rllib.view_requirements import add_views, default_requirements
from lightning_rl.sample_batch import (
    PER_SEQUENCE,
    Fragment,
    env_steps,
    first_row,
    from_nested_batch,
    map_leaves,
    row_count,
    to_nested_batch,
    to_tensors,
    typed,
)
from lightning_rl.schedules import schedule_value
from lightning_rl.schema.signatures import call_with_accepted_args

__all__ = ["PREVIOUS", "Policy", "RLlibMethods", "TorchPolicy", "build_torch_policy"]


ACTING = ("action_sampler_fn", "action_distribution_fn")
GIVEN = ("loss", "action_distribution_class", *ACTING, "max_seq_len", "get_batch_divisibility_req")
"""RLlib's keywords of a policy's constructor."""
DEFAULT_VIEWS = default_requirements().keys()
PREVIOUS = {"prev_actions": "prev_action_batch", "prev_rewards": "prev_reward_batch"}
"""Arguments of this package's policies → those of RLlib's."""
COEFFICIENTS = {"kl_coeff": "kl_coef", "entropy_coeff": "entropy_coef"}


class Flag(int):
    """A truth value that is one when it is called as well: `policy.is_recurrent`, and RLlib's `is_recurrent()`."""

    def __call__(self) -> bool:
        return bool(self)


def _name_config(policy_class: Any) -> None:
    """Give the third argument of a class's constructor the name `config`, by which it is passed."""
    constructor = policy_class.__init__
    signature = inspect.signature(constructor)
    parameters = [*signature.parameters.values()]
    third = parameters[3] if len(parameters) > 3 else None
    if third is None or third.default is not third.empty or third.kind is not third.POSITIONAL_OR_KEYWORD:
        return

    @functools.wraps(constructor)
    def construct(
        self: Any, observation_space: Any, action_space: Any, config: Any, *more: Any, **keywords: Any
    ) -> None:
        constructor(self, observation_space, action_space, config, *more, **keywords)

    parameters[3] = third.replace(name="config")
    construct.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    policy_class.__init__ = construct


class RLlibMethods:
    """Put before a policy class, it adds RLlib's methods to it."""

    framework = "torch"
    reads_trajectories = False  # whether a method of postprocessing is in RLlib's form
    takes_episodes = False  # whether `compute_actions` of the class has the argument
    episode_records: EpisodeRecords | None = None
    _adds_columns = False  # to those of actions: while a caller asks for them, and not a worker
    _single_episode: list[Any] | None = None  # that of `compute_single_action`

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Let a method of postprocessing in RLlib's form see one trajectory at a time."""
        own = vars(cls).get("postprocess_trajectory")
        if own is not None and takes_episode(own, 3):
            cls.postprocess_trajectory = _on_trajectories(own)  # type: ignore[attr-defined]
            cls.reads_trajectories = True
        if "compute_actions" in vars(cls):
            cls.takes_episodes = "episodes" in inspect.signature(vars(cls)["compute_actions"]).parameters
        if "__init__" in vars(cls):
            _name_config(cls)
        super().__init_subclass__(**keywords)

    # -- acting -------------------------------------------------------------------------------------------------------
    def compute_actions_from_input_dict(
        self: Any,
        input_dict: Mapping[str, Any] | sample_batch.SampleBatch,
        explore: bool | None = None,
        timestep: int | None = None,
        episodes: Sequence[Any] | None = None,
        **keywords: Any,
    ) -> tuple[Any, list[Any], dict[str, Any]]:
        """`compute_actions` of the columns "obs", "state_in_0" …, "prev_actions" and "prev_rewards" of a batch.

        Args:
            input_dict: the columns, `[B, *]` each.
            explore, timestep, episodes, keywords: see `compute_actions`.
        """
        batch = SampleBatch(dict(input_dict.items()))
        return self.compute_actions(
            input_dict["obs"],
            _states(batch),
            prev_action_batch=batch.get("prev_actions"),
            prev_reward_batch=batch.get("prev_rewards"),
            explore=explore,
            timestep=timestep,
            episodes=episodes,
            **keywords,
        )

    def compute_single_action(
        self: Any,
        obs: Any = None,
        state: Sequence[Any] | None = None,
        prev_action: Any = None,
        prev_reward: float | None = None,
        info: Mapping[str, Any] | None = None,
        *,
        input_dict: Mapping[str, Any] | sample_batch.SampleBatch | None = None,
        episode: Any = None,
        explore: bool | None = None,
        timestep: int | None = None,
        action_mask: Any = None,
        full_fetch: bool = True,
    ) -> Any:
        """The action for one observation, as the tuple (action, next state, further columns).

        As those of `compute_actions` it is in the policy's space, in which a bounded Box is [−1, 1]; `env_action`
        makes it ready for `env.step`, as `Trainer.compute_single_action` returns it.

        Args:
            obs: one observation of the environment, without a batch dimension.
            state: the state of a recurrent policy: the state that the last call returned; `None` at an episode's start.
            prev_action, prev_reward: the previous action and reward of the step before, for models that read one of
                them.
            info: without effect, like in most of RLlib's policies.
            episode: the episode that the class's own `compute_actions` gets as `episodes`.
            input_dict: a batch of one row in place of all these, see `compute_actions_from_input_dict`.
            explore: sample through the exploration strategy, or take the best action; `None`: `config["explore"]`.
            timestep: environment steps so far, for exploration schedules; `None`: `global_timestep`.
            action_mask: the allowed actions, as the environment's info gives them.
            full_fetch: whether to return the tuple; False: only the action.
        """
        explore = self.config.get("explore", True) if explore is None else explore
        if input_dict is not None:
            row = SampleBatch(dict(input_dict.items()))
            obs = first_row(from_nested_batch(self.observation_space, row["obs"]))
            state = [part[0] for part in _states(row)]
            prev_action, prev_reward = (
                row[name][0] if name in row else None for name in ("prev_actions", "prev_rewards")
            )
        self._single_episode, self._adds_columns = [] if episode is None else [episode], True
        try:
            action, states, extra = super().compute_single_action(  # type: ignore[misc]
                obs,
                [torch.as_tensor(part) for part in state or ()],
                prev_action=prev_action,
                prev_reward=prev_reward,
                explore=explore,
                timestep=timestep,
                action_mask=action_mask,
                full_fetch=True,
            )
        finally:
            self._single_episode, self._adds_columns = None, False
        return (action, list(map(_array, states)), _columns_of(extra)) if full_fetch else action

    def _episodes_of(self: Any, rows: int) -> list[Any] | None:
        """The episodes of the environments in which it acts; `None` if this process does not play them."""
        if self._single_episode is not None:
            return self._single_episode or None
        actor = self.exploration.actor
        records = self.episode_records or EpisodeRecords()
        acting = records.acting.get((actor.stream, actor.worker_index))
        if acting is None or rows != actor.num_envs:
            return None
        return [acting[row * len(acting) // rows] for row in range(rows)]

    def get_exploration_info(self: Any) -> dict[str, Any]:
        """Numbers of the exploration strategy, such as the current ε, as `get_exploration_state`."""
        return self.exploration.info(self.env_steps)

    get_exploration_state = get_exploration_info

    # -- what RLlib calls things --------------------------------------------------------------------------------------
    @property
    def global_timestep(self: Any) -> int:
        """Environment steps so far, which schedules follow."""
        return self.env_steps

    @global_timestep.setter
    def global_timestep(self: Any, env_steps: int) -> None:
        self.env_steps = env_steps

    def on_global_var_update(self: Any, global_vars: Mapping[str, Any]) -> None:
        """Take over the learner's count of environment steps, `global_vars["timestep"]`."""
        self.env_steps = global_vars["timestep"]

    @property
    def action_space_struct(self: Any) -> Any:
        """The action space as plain dicts and tuples of its leaves."""
        return _struct(self.action_space)

    def import_model_from_h5(self: Any, import_file: str) -> None:
        """Refuse files of Keras.

        Raises:
            ConfigError: always; names what loads weights here.
        """
        raise ConfigError(
            f"import_model_from_h5({import_file!r}): h5 files hold models of Keras, and these are PyTorch's: load a "
            "checkpoint with Policy.load(path), or weights by name with policy.set_weights(weights)"
        )

    # -- learning on loaded batches -----------------------------------------------------------------------------------
    def load_batch_into_buffer(self: Any, batch: sample_batch.SampleBatch, buffer_index: int = 0) -> int:
        """Keep the rows of a fragment (or postprocessed rows) on this policy's device; returns how many there are.

        Environment steps are counted and running statistics updated here, not in `learn_on_loaded_batch`.
        """
        learner, fragment = self.learner, isinstance(typed(batch), Fragment)
        # Replayed rows were counted when they were collected.
        if learner.counts_env_steps and (fragment or not self.off_policy):
            self.env_steps += sum_over_ranks(env_steps(batch))
        learner.enter_training()
        rows = learner.rows_of(batch).to(self.device)
        if fragment:
            self.update_filters(rows)
        self.iterations += 1
        vars(self).setdefault("_loaded", {})[buffer_index] = rows
        return rows.count

    def get_num_samples_loaded_into_buffer(self: Any, buffer_index: int = 0) -> int:
        """Rows that `load_batch_into_buffer` keeps under this number."""
        rows = vars(self).get("_loaded", {}).get(buffer_index)
        return 0 if rows is None else rows.count

    def learn_on_loaded_batch(self: Any, offset: int = 0, buffer_index: int = 0) -> dict[str, float]:
        """One gradient step on loaded rows: one of `minibatches` equal parts of them, from row `offset` on.

        All sequences are learned from at once.

        Raises:
            ConfigError: no rows are loaded under this index, or the offset is out of range.
            NonFiniteError: a loss or gradient is NaN or infinite; no parameter was changed.
        """
        count = self.get_num_samples_loaded_into_buffer(buffer_index)
        if not count:
            raise ConfigError(f"buffer_index={buffer_index} holds no rows: call load_batch_into_buffer first")
        rows, learner = self._loaded[buffer_index], self.learner
        last = 0 if "seq_lens" in rows else count - 1
        if not 0 <= offset <= last:
            raise ConfigError(
                f"offset={offset} in {count} loaded rows{' of sequences' * (not last)}; expected ≤ {last}"
            )
        part = rows if "seq_lens" in rows else rows[offset : offset + -(-count // learner.minibatch_count(rows))]
        if "learn_on_batch" in self.overridden:
            return self.learn_on_batch(part)
        self.train()
        self.log_extra = True
        learner.optimizer.set_lr(self.env_steps)
        return means([learner.step(part)[0]])

    def learn_on_batch_from_replay_buffer(
        self: Any, replay_actor: Any, policy_id: str = "default_policy"
    ) -> dict[str, Any]:
        """Learn from rows that a replay buffer samples, and update their priorities with the TD errors.

        Args:
            replay_actor: a `LocalReplayBuffer`, or the Ray actor of one.
            policy_id: the policy whose rows are sampled.

        Returns:
            Metrics; empty while the buffer samples nothing.

        Raises:
            ConfigError: the buffer has no rows of that policy.
        """
        batch = call_buffer(replay_actor.replay, policy_id)
        if batch is None:
            return {}
        batch = batch.to(self.device)
        result = self.learn_on_batch(batch)
        if "weights" in batch and self.learner.td_errors is not None:
            errors = {policy_id: (batch.batch_indexes.cpu(), self.learner.td_errors.cpu())}
            call_buffer(replay_actor.update_priorities, errors)
        return result

    @classmethod
    def with_updates(cls, name: str | None = None, **hooks: Any) -> Any:
        """A subclass with some methods replaced by functions: `PPOTorchPolicy.with_updates("Mine", loss_fn=my_loss)`.

        Args:
            name: the name of the class, `None`: this one's. Assign the class to a variable of that name at a module's
                top
                level: checkpoints import it.
            hooks: arguments of `build_policy`.
        """
        caller = sys._getframe(1).f_globals["__name__"]
        return build_policy(name or cls.__name__, base=cls, module=caller, **hooks)  # type: ignore[arg-type]


class ActsInAllLanes(Exploration):
    """No exploration, for a policy that reads the episodes of its lanes: it acts in all of them at each step."""

    @property
    def follows_episodes(self) -> bool:
        """Always."""
        return True

    def episode_state(self) -> dict[str, Any]:
        """Nothing."""
        return {}


class Policy(RLlibMethods, policies.ScratchPolicy):
    """The abstract class there has no model either.

    Args:
        observation_space, action_space: the spaces of one environment.
        config: RLlib's keys, in a Trainer all of them; "seed" is that of samples of the action space.
    """

    def __init__(
        self, observation_space: Space[Any], action_space: Space[Any], config: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(observation_space, action_space, config, seed=(config or {}).get("seed") or 0)
        self.is_recurrent: Any = Flag(self.is_recurrent)
        if self.takes_episodes:
            self.exploration = ActsInAllLanes(action_space)

    def act(self, obs: Any, state: Sequence[Tensor] = (), **arguments: Any) -> tuple[Any, list[Any], dict[str, Any]]:
        """As `ScratchPolicy`, with the episodes where `compute_actions` takes them."""
        episodes = {"episodes": self._episodes_of(row_count(obs))} if self.takes_episodes else {}
        return super().act(obs, state, **arguments, **episodes)

    def _create_exploration(self) -> Exploration:
        """The strategy that it has: what a policy without a model explores by is its own `compute_actions`."""
        return self.exploration

    def postprocess_trajectory(
        self, batch: sample_batch.SampleBatch, other_agent_batches: Any = None
    ) -> sample_batch.SampleBatch:
        """The fragment as transitions `[N, …]`, under RLlib's names; of one trajectory, the trajectory."""
        is_whole = isinstance(typed(batch), Fragment)
        return SampleBatch.of(super().postprocess_trajectory(batch, other_agent_batches)) if is_whole else batch


class TorchPolicy(RLlibMethods, policies.Policy):
    """A policy with a model, in RLlib's form.

    Args:
        observation_space, action_space: the spaces of one environment.
        config: RLlib's keys, such as "lr", "clip_param" and "model"; those of workers and environments are only kept.
        keywords: the keywords of the algorithm that the class derives from. `model` may also be a model that is built,
            and there may be RLlib's `loss(policy, model, dist_class, train_batch)`, `action_distribution_class`,
            `action_sampler_fn` and `action_distribution_fn` (see `build_policy`); `max_seq_len` and
            `get_batch_divisibility_req` have no effect.

    Raises:
        ConfigError: neither the class nor a keyword has a loss.

    Attributes:
        view_requirements: columns of trajectories and training batches by name: RLlib's, those of the model, and those
            that a class adds.
        config: RLlib's keys with the values that the policy has.
        has_classic_loss: whether the class, or a function, defines a loss in RLlib's form.
        base_metrics: metrics of the last loss that a class calls as `super().loss`, or that it adds to.
    """

    has_classic_loss: ClassVar[bool] = False
    has_classic_action_out: ClassVar[bool] = False

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Let methods in RLlib's form be called by the learner, and say which methods the class defines."""
        own = vars(cls)
        if "loss" in own and _positional(own["loss"]) > 2:
            cls.loss, cls.has_classic_loss = _learner_calls_loss(own["loss"]), True  # type: ignore[method-assign]
            if _definer(cls.__bases__[0], "loss") is policies.Policy:
                cls.supports_recurrent = True
        if "extra_action_out" in own and _positional(own["extra_action_out"]) > 3:
            cls.extra_action_out = _acting_calls_action_out(own["extra_action_out"])  # type: ignore[method-assign]
            cls.has_classic_action_out = True
        super().__init_subclass__(**keywords)
        cls.overridden = frozenset(verb for verb in VERBS if _definer(cls, verb) is not policies.Policy)
        # A constructor of its own may hand on a loss.
        cls.has_loss = _has_loss(cls) or cls.__init__ is not TorchPolicy.__init__
        own_readers = any(_definer(cls, name) is not policies.Policy for name in OUTPUT_READERS)
        cls.reads_outputs = own_readers or cls.has_classic_loss

    def __init__(
        self,
        observation_space: Space[Any],
        action_space: Space[Any],
        config: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> None:
        given = {name: getattr(type(self), name) for name in ACTING if hasattr(type(self), name)}
        given |= {name: keywords.pop(name) for name in GIVEN if name in keywords}
        if isinstance(keywords.get("model"), torch.nn.Module):
            given["model"] = keywords.pop("model")
        vars(self)["_given"] = given  # without making the model a submodule
        if given.get("loss") is not None:
            self.has_classic_loss = self.supports_recurrent = self.reads_outputs = True  # type: ignore[misc]
        if not _has_loss(type(self)):
            self.has_loss = given.get("loss") is not None  # type: ignore[misc]
        if not self.has_loss and type(self).overridden.isdisjoint({"learn_on_batch", "compute_gradients"}):
            raise ConfigError(
                f"policy {type(self).__name__} has no loss: define loss(self, model, dist_class, train_batch), or call "
                "super().__init__(…, loss=function)"
            )
        own = vars(self).get("config", {})  # a policy made of functions has its settings before it is built
        base = type(self).__mro__[type(self).__mro__.index(RLlibMethods) + 1]
        keywords = {**policy_keywords(base, config or {}, keywords), **keywords}
        settings = {**settings_of(base), **keywords}
        built = classic_policy_config(settings, model_config(settings.get("model")))
        same = {key: built[key] for key in built if key in settings}  # keywords with the names of RLlib's keys
        self.config = {"framework": "torch", "explore": True, **(config or {}), **built, **own, **same}
        super().__init__(observation_space, action_space, **keywords)
        self.is_recurrent: Any = Flag(self.is_recurrent)
        given.pop("model", None)
        self.view_requirements = {**default_requirements(), **getattr(self.model, "view_requirements", {})}
        steps = {"optimizer_fn": "optimizer", "extra_grad_process_fn": "extra_grad_process"}
        hooks = {hook: getattr(type(self), name) for hook, name in steps.items() if self._defines(name)}
        self.learner.optimizer = FunctionOptimizer(self.learner.optimizer, hooks)

    def _defines(self, method: str) -> bool:
        return getattr(type(self), method) is not getattr(TorchPolicy, method)

    @property
    def prev_actions(self) -> int:
        """The number of earlier actions that workers record; RLlib's trajectories and losses have at least one.

        :meta private:
        """
        return max(self.model.prev_actions, self._records_previous)

    @property
    def prev_rewards(self) -> int:
        """The number of earlier rewards that workers record."""
        return max(self.model.prev_rewards, self._records_previous)

    @property
    def _records_previous(self) -> bool:
        acts = type(self).compute_actions
        takes_them = acts is TorchPolicy.compute_actions or "obs_batch" in inspect.signature(acts).parameters
        return takes_them and not self.off_policy and (self.has_classic_loss or self.reads_trajectories)

    # -- hooks of a class ---------------------------------------------------------------------------------------------
    def make_model(self) -> Any:
        """The model; a class may define this with another one, as `build_policy`'s `make_model`."""
        return vars(self)["_default_model"]

    def make_model_and_action_dist(self, model: Mapping[str, Any] | None, **head: Any) -> tuple[Any, DistFactory]:
        """As `lightning_rl.Policy`, with the model of the class's `make_model`."""
        if "model" in self._given:
            chosen = self._given.get("action_distribution_class")
            policy_space = self.action_transform.policy_space
            dist_class = chosen or ModelCatalog.get_action_dist(self.action_space, model, policy_space)[0]
            return checked_model(self._given["model"]), dist_class
        default, dist_class = super().make_model_and_action_dist(model, **head)
        dist_class = self._given.get("action_distribution_class") or dist_class
        if not self._defines("make_model"):
            return default, dist_class
        vars(self)["_default_model"] = default  # without becoming a submodule
        made = checked_model(self.make_model())
        del vars(self)["_default_model"]
        return made, dist_class

    def optimizer(self) -> Any:
        """A new torch optimizer by the policy's keys; one that a class defines keeps its own learning rate."""
        return PolicyOptimizer.make(self.learner.optimizer)

    def extra_grad_process(self, optimizer: torch.optim.Optimizer, loss: Tensor | None) -> Mapping[str, Any]:
        """Metrics; called before each step, when gradients are computed and not yet clipped to `grad_clip`.

        Args:
            optimizer: whose parameters have the gradients.
            loss: a scalar; `None` of gradients that another copy of the policy computed.
        """
        return {}

    def extra_grad_info(self, train_batch: SampleBatch) -> Mapping[str, Any]:
        """Metrics of a training batch, after its loss: those of the base's loss."""
        return dict(self.base_metrics)

    stats_fn = extra_grad_info

    def extra_compute_grad_fetches(self) -> Mapping[str, Any]:
        """Metrics of the loss that was computed last, as `extra_grad_info`."""
        return dict(self.base_metrics)

    def _with_grad_info(self, metrics: Metrics, rows: sample_batch.SampleBatch) -> Metrics:
        """Metrics of a loss with those of the class's own methods for them."""
        for name in ("extra_grad_info", "stats_fn", "extra_compute_grad_fetches"):
            if self._defines(name):
                self.base_metrics = metrics
                info = call_with_accepted_args(getattr(self, name), SampleBatch.of(rows))
                metrics = {**metrics, **as_tensors(td_errors_of(info))}
        return metrics

    # -- acting -------------------------------------------------------------------------------------------------------
    def compute_actions(  # type: ignore[override]
        self,
        obs_batch: Any,
        state_batches: Sequence[Any] | None = None,
        prev_action_batch: Any = None,
        prev_reward_batch: Any = None,
        info_batch: Any = None,
        episodes: Sequence[Any] | None = None,
        explore: bool | None = None,
        timestep: int | None = None,
        **keywords: Any,
    ) -> tuple[Any, list[np.ndarray], dict[str, np.ndarray]]:
        """Actions of the policy's space for a batch of observations, the next state, and further columns, as arrays.

        Among these are "action_dist_inputs", "action_logp" and "action_prob", where actions come from a distribution,
        and "vf_preds" of algorithms with generalized advantages.

        Args:
            obs_batch: `[B, *]`, nested as the space is; or a list of `B` observations.
            state_batches: recurrent state `[B, …]` each; `None` at an episode's start.
            prev_action_batch, prev_reward_batch: the previous actions and rewards of the step before, for models that
                read them.
            info_batch, episodes: without effect, like in most of RLlib's policies; a class's own method that takes
                `episodes` gets those of the environments, where this process plays them.
            explore: sample through the exploration strategy, or take the best actions; `None`: `config["explore"]`.
            timestep: environment steps so far, for exploration schedules; `None`: `global_timestep`.
            keywords: see `lightning_rl.Policy.compute_actions`: action_mask, logp.
        """
        before = {"prev_actions": prev_action_batch, "prev_rewards": prev_reward_batch}
        # A class's own method that calls this one gets the actions of its base.
        act = self.act if type(self).compute_actions is TorchPolicy.compute_actions else super().compute_actions
        self._adds_columns = True
        try:
            actions, states, extra = act(
                _batch_of(self.observation_space, obs_batch),
                [torch.as_tensor(part) for part in state_batches or ()],
                **{name: to_tensors(value, self.device) for name, value in before.items() if value is not None},
                explore=self.config.get("explore", True) if explore is None else explore,
                timestep=timestep,
                **keywords,
            )
        finally:
            self._adds_columns = False
        return map_leaves(_array, actions), list(map(_array, states)), _columns_of(extra)

    def single_action(self, actions: Any) -> Any:
        """The first of the policy-space actions, as arrays nested like the space."""
        return first_row(from_nested_batch(self.action_transform.policy_space, map_leaves(_array, actions)))

    def env_action(self, action: Any) -> Any:
        """An action that `compute_single_action` returned, ready for `env.step`."""
        batch = to_nested_batch(map_leaves(lambda leaf: np.asarray(leaf)[None], action))
        return first_row(self.env_actions(to_tensors(batch, self.device)))

    def actions_to_record(self, obs: Any, state: Sequence[Tensor] = (), **arguments: Any) -> tuple[Any, list[Any], Any]:
        """As `lightning_rl.Policy`; a class's own `compute_actions` gets RLlib's arguments and may return arrays."""
        if any(self._given.get(name) for name in ACTING):
            return act_by_functions(self, self._given, obs, state, **arguments)
        if type(self).compute_actions is TorchPolicy.compute_actions:
            return super().compute_actions(obs, state, **arguments)
        takes = inspect.signature(type(self).compute_actions).parameters
        if self.takes_episodes:
            arguments["episodes"] = self._episodes_of(row_count(obs))
        if "obs_batch" in takes:
            arguments = {PREVIOUS.get(name, name): value for name, value in arguments.items()}
            if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in takes.values()):
                arguments = {name: value for name, value in arguments.items() if name in takes}
        actions, states, extra = self.compute_actions(obs, list(state), **arguments)
        actions = np.stack(actions) if isinstance(actions, list) else actions
        columns = {name: torch.as_tensor(column) for name, column in extra.items()}
        return map_leaves(torch.as_tensor, actions), list(map(torch.as_tensor, states)), columns

    def input_dict(self, obs: Any, **before: Any) -> InputDict:
        """As `lightning_rl.Policy`; stores the result for an `extra_action_out` in RLlib's form."""
        inputs = super().input_dict(obs, **before)
        if self.has_classic_action_out:
            self._inputs = inputs
        return inputs

    def extra_action_out(self, *arguments: Any) -> dict[str, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The base's columns; with a loss in RLlib's form also "action_dist_inputs" `[N, K]`.

        To a caller, that column as well, and "vf_preds" `[N]` of algorithms with generalized advantages.

        Args:
            arguments: (outputs, action_dist), or (input_dict, state_batches, model, action_dist) as RLlib has them.
        """
        outputs: Any = arguments[0] if len(arguments) == 2 else self._outputs
        dist = arguments[-1]
        columns = super().extra_action_out(outputs, dist)
        if self._adds_columns and "vf_preds" not in columns and hasattr(self, "gae_lambda"):
            columns = {"vf_preds": self.model.value_function(), **columns}
        classic = (self.has_classic_loss and not self.off_policy) or self._adds_columns
        return {"action_dist_inputs": outputs, **columns} if classic else columns

    def compute_log_likelihoods(  # type: ignore[override]
        self,
        actions: Any,
        obs_batch: Any,
        state_batches: Sequence[Any] | None = None,
        prev_action_batch: Any = None,
        prev_reward_batch: Any = None,
        actions_normalized: bool = True,
    ) -> Tensor:
        """Log π(a|s), `[B]`, of actions in the policy's space (`actions_normalized=False`: in the environment's).

        Args:
            actions: `[B, …]`.
            obs_batch, state_batches, prev_action_batch, prev_reward_batch: see `compute_actions`.
            actions_normalized: whether `actions` are in the policy's space.
        """
        before = {"prev_actions": prev_action_batch, "prev_rewards": prev_reward_batch}
        return super().compute_log_likelihoods(
            actions,
            _batch_of(self.observation_space, obs_batch),
            [torch.as_tensor(part) for part in state_batches or ()],
            actions_normalized=actions_normalized,
            **{name: to_tensors(value, self.device) for name, value in before.items() if value is not None},
        )

    def get_initial_state(self, batch_size: int | None = None) -> list[Any]:
        """The state at an episode's start: arrays of one environment's, or `[B, …]` tensors of a `batch_size`."""
        if batch_size is None:
            return [_array(part) for part in self.model.get_initial_state()]
        return super().get_initial_state(batch_size)

    # -- learning -----------------------------------------------------------------------------------------------------
    def learn_on_batch(self, batch: sample_batch.SampleBatch) -> dict[str, float]:
        """Learn from a fragment, or from rows, perhaps of arrays; returns means of the metrics."""
        return super().learn_on_batch(self._tensors(batch))

    def compute_gradients(self, batch: sample_batch.SampleBatch) -> tuple[Any, dict[str, float]]:
        """Gradients of one minibatch, a fragment or rows, perhaps of arrays; see `lightning_rl.Policy`."""
        return super().compute_gradients(self._tensors(batch))

    def _tensors(self, batch: sample_batch.SampleBatch) -> sample_batch.SampleBatch:
        """Tensors of a batch; transitions that are made by hand get the discounts of one step."""
        rows = tensor_rows(batch, self.device)
        if self.off_policy and "next_obs" in rows and "discounts" not in rows:
            rows["discounts"] = torch.full_like(rows.rewards, self.gamma)
        return rows

    def loss(self, *arguments: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The base's loss of a training batch, the last argument: a scalar of (model, dist_class, train_batch).

        Of a batch alone, as the learner calls it, (scalar, metrics).
        """
        if len(arguments) == 1 and self._given.get("loss") is not None:
            return _learner_calls_loss(_given_loss)(self, arguments[0])
        loss, metrics = super().loss(arguments[-1])
        if len(arguments) == 1:
            return loss, self._with_grad_info(metrics, arguments[0])
        self.base_metrics = metrics
        return loss

    def postprocess_trajectory(self, batch: Any, other_agent_batches: Any = None, *episode: Any) -> Any:
        """The base's rows of a fragment; or of one trajectory in arrays, as a method in RLlib's form hands it on."""
        if isinstance(typed(batch), Fragment):
            own = self.view_requirements.keys() - DEFAULT_VIEWS
            if (self.has_classic_loss or own) and not self.off_policy:
                batch = add_views(self.view_requirements, batch, self.model, self.action_transform.policy_space)
            return super().postprocess_trajectory(batch, other_agent_batches)
        rows = super().postprocess_trajectory(fragment_of_trajectory(batch))
        trajectory = batch.copy()
        for name, column in rows.without(*PER_SEQUENCE).items():
            trajectory[name] = map_leaves(_array, column)
        return trajectory

    def compute_td_error(
        self, obs_t: Any, act_t: Any, rew_t: Any, obs_tp1: Any, done_mask: Any, importance_weights: Any
    ) -> Tensor:
        """The TD errors `[N]` of transitions, without a gradient step.

        Args:
            obs_t, act_t, rew_t, obs_tp1: observations `[N, *]`, actions `[N, …]` of the policy's space, the sums of
                `config["n_step"]` discounted rewards `[N]`, and the observations after them.
            done_mask: `[N]`, where nothing follows.
            importance_weights: weights of the rows' losses, `[N]`.

        Raises:
            ConfigError: this algorithm has no TD errors.
        """
        if not self.off_policy:
            raise ConfigError(f"{type(self).__name__} has no TD errors: only algorithms that replay have, such as dqn")
        columns = {"obs": obs_t, "actions": act_t, "rewards": rew_t, "next_obs": obs_tp1, "weights": importance_weights}
        rows = SampleBatch({name: to_tensors(column, self.device) for name, column in columns.items()})
        rows["terminated"] = to_tensors(done_mask, self.device).bool()
        rows["discounts"] = torch.full_like(rows.rewards, self.gamma ** self.config.get("n_step", 1))
        with torch.no_grad(), in_eval_mode(self):
            return self.loss(rows)[1]["td_errors"]

    # -- what RLlib calls things --------------------------------------------------------------------------------------
    def __getattr__(self, name: str) -> Any:
        """What RLlib's policies have under these names, unless a class sets them; coefficients have their value now."""
        if name in COEFFICIENTS:
            value = getattr(self, COEFFICIENTS[name])
            return value.item() if isinstance(value, Tensor) else schedule_value(value, self.env_steps)
        if name == "cur_lr":
            return schedule_value(self.learner.optimizer.lr, self.env_steps)
        if name == "_optimizers":
            optimizer = self.learner.optimizer
            if not optimizer.rate:  # so that a rate that is assigned before training differs from its own
                optimizer.set_lr(self.env_steps)
            return [optimizer.torch_optimizer]
        return self.model if name == "q_model" else super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; of coefficients and `cur_lr` that of the loss or optimizer, in place of its schedule.

        Raises:
            ConfigError: `kl_coeff` of a policy without a KL penalty, whose samples lack what it is computed from.
        """
        if name == "cur_lr" and "learner" in vars(self) and not hasattr(type(self), name):
            self.learner.optimizer.lr = float(value)
            return
        own = COEFFICIENTS.get(name)
        if own is None or name in vars(self) or hasattr(type(self), name) or not hasattr(self, own):
            super().__setattr__(name, value)
        elif name == "entropy_coeff":
            self.entropy_coef = float(value)
        elif value and not self.has_kl_penalty and not self.has_classic_loss:
            raise ConfigError(
                f"kl_coeff={value!r} of a policy that was built without a KL penalty: give the config a positive "
                '"kl_coeff" to start with'
            )
        else:
            self.kl_coef.fill_(float(value))

    def _create_exploration(self) -> Exploration:
        """A new exploration strategy by `config["exploration_config"]`."""
        return make_exploration(
            self.config.get("exploration_config"), self.action_transform.policy_space, self.observation_space
        )

    def update_kl(self, sampled_kl: float) -> float:
        """The coefficient of the KL penalty, which follows from each iteration's KL without a call of this."""
        return self.kl_coeff

    @property
    def model_gpu_towers(self) -> list[Any]:
        """The model; Lightning's strategies keep the copies on further devices."""
        return [self.model]

    @property
    def devices(self) -> list[torch.device]:
        """The device of the model."""
        return [self.device]

    def export_model(  # type: ignore[override]
        self, export_dir: str | Path, onnx: int | None = None, **keywords: Any
    ) -> dict[str, Any]:
        """Write the policy as ONNX, or without `onnx` as TorchScript; see `lightning_rl.Policy.export_model`.

        Args:
            export_dir: gets the file.
            onnx: RLlib's opset; any number takes the one that torch exports best.
            keywords: the keywords of `lightning_rl.Policy.export_model`, such as `format`.
        """
        return super().export_model(export_dir, **{"format": "onnx" if onnx else "torchscript", **keywords})


TorchPolicy.takes_episodes = False
TorchPolicy.overridden, TorchPolicy.has_loss = frozenset(), False  # its own methods only adapt those of another


def build_torch_policy(name: str, *, base: type[policies.Policy] = TorchPolicy, **hooks: Any) -> type[Any]:
    """A policy class made of functions, with RLlib's methods; see `build_policy` for the arguments.

    RLlib's arguments `framework`, `view_requirements_fn` and `get_batch_divisibility_req` are taken and have no effect.
    """
    for without_effect in ("framework", "view_requirements_fn", "get_batch_divisibility_req"):
        hooks.pop(without_effect, None)
    return build_policy(name, base=base, module=sys._getframe(1).f_globals["__name__"], **hooks)


def _positional(function: Callable[..., Any]) -> int:
    return sum(
        parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        for parameter in inspect.signature(function).parameters.values()
    )


def _has_loss(cls: type) -> bool:
    return _definer(cls, "loss") is not policies.Policy


def _given_loss(self: Any, model: Any, dist_class: Any, train_batch: SampleBatch) -> Any:
    """The loss of the keyword `loss`, which gets the policy as well if it takes four arguments."""
    function = self._given["loss"]
    return function(*((self,) if _positional(function) > 3 else ()), model, dist_class, train_batch)


def _definer(cls: type, name: str) -> type:
    """The class that defines a method, apart from the base classes here, which only adapt another's."""
    return next(base for base in cls.__mro__ if name in vars(base) and base not in (RLlibMethods, TorchPolicy))


def _learner_calls_loss(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method `loss(self, model, dist_class, train_batch)` that the learner may call with rows alone."""

    @functools.wraps(method)
    def loss(self: Any, *arguments: Any) -> Any:
        if len(arguments) > 1:
            return method(self, *arguments)
        rows: Any = arguments[-1]  # pyright: ignore[reportGeneralTypeIssues]
        model: Any = BatchModel(self)
        self.base_metrics = {}
        result = loss_and_metrics(method(self, model, model.distribution, SampleBatch.of(rows)))
        return result[0], self._with_grad_info({**td_errors_of(self.base_metrics), **result[1]}, rows)

    return loss


def _acting_calls_action_out(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method `extra_action_out(self, input_dict, state_batches, model, action_dist)`, beside the base's columns.

    Acting calls it with (outputs, action_dist), and `super()` of another class as it is.
    """

    @functools.wraps(method)
    def extra_action_out(self: Any, *arguments: Any) -> dict[str, Tensor]:
        if len(arguments) > 2:
            return method(self, *arguments)
        given: tuple[Any, ...] = arguments
        self._outputs, dist = given
        base = TorchPolicy.extra_action_out(self, *given)
        return {**base, **method(self, self._inputs, [], self.model, dist)}

    return extra_action_out


def _on_trajectories(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method `postprocess_trajectory(self, sample_batch, other, episode)` that the learner calls with a fragment."""

    @functools.wraps(method, assigned=("__name__", "__doc__"))  # its module is this one: replay calls it
    def postprocess_trajectory(self: Any, batch: Any, other_agent_batches: Any = None, episode: Any = None) -> Any:
        if isinstance(typed(batch), Fragment):
            return postprocess_trajectories(self, functools.partial(method, self), batch, other_agent_batches)
        return method(self, batch, other_agent_batches, episode)

    return postprocess_trajectory


def _columns_of(extra: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of actions as arrays, with the probability beside its logarithm."""
    columns = {name: map_leaves(_array, column) for name, column in extra.items()}
    return {**columns, "action_prob": np.exp(columns["action_logp"])} if "action_logp" in columns else columns


def _array(value: Any) -> np.ndarray:
    return value.numpy(force=True) if isinstance(value, Tensor) else np.asarray(value)


def _states(batch: SampleBatch) -> list[Any]:
    """The parts "state_in_0", "state_in_1" … of the recurrent state, in this order."""
    names = itertools.takewhile(batch.__contains__, (f"state_in_{number}" for number in itertools.count()))
    return [batch[name] for name in names]


def _batch_of(space: Space[Any], obs: Any) -> Any:
    """A batch `[B, *]` of observations, perhaps given as a list of `B`."""
    if not isinstance(obs, list):
        return obs
    return concatenate(space, obs, create_empty_array(space, len(obs), fn=np.zeros))


def _struct(space: Space[Any]) -> Any:
    if isinstance(space, spaces.Dict):
        return {name: _struct(child) for name, child in space.spaces.items()}
    return tuple(map(_struct, space.spaces)) if isinstance(space, spaces.Tuple) else space
