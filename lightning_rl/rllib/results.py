"""Results of RLlib's trainers, by the names that they have there."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from lightning.pytorch import Callback
from torch import Tensor
from torch.nn.utils import get_total_norm

from lightning_rl.data.datamodule import EpisodeWindow
from lightning_rl.data.datasets import EvaluationDataset
from lightning_rl.data.policy_feeds import trained_policies
from lightning_rl.distributed import sum_over_ranks
from lightning_rl.policies import APPO, IMPALA
from lightning_rl.rllib.callbacks import EpisodeStatistics
from lightning_rl.rllib.config_in_file import describe_trainer
from lightning_rl.rllib.plans import metrics_by_policy
from lightning_rl.rllib.torch_policy import RLlibMethods
from lightning_rl.rllib.trajectories import postprocess_stored
from lightning_rl.sample_batch import Fragment, MultiAgentBatch, env_steps, typed
from lightning_rl.schedules import schedule_value

__all__ = ["ClassicState", "ResultWindow", "counted_unit", "evaluation_result", "step_counts", "training_result"]

# A metric of learning → its name in the results of RLlib's algorithms.
LEARNER_STATS = {
    "loss": "total_loss",
    "value_loss": "vf_loss",
    "entropy": "policy_entropy",
    "explained_variance": "vf_explained_var",
    "approx_kl": "kl",
    "lr": "cur_lr",
    "kl_coef": "cur_kl_coeff",
    "grad_norm": "grad_gnorm",
    "q_mean": "mean_q",
    "q_min": "min_q",
    "q_max": "max_q",
    "q_total": "q_taken_mean",
    "td_error": "mean_td_error",  # the mean of absolute values
    "alpha": "alpha_value",
}
# RLlib's name → the attribute of a policy, perhaps a schedule.
COEFFICIENT_STATS = {"cur_kl_coeff": "kl_coef", "KL_Coeff": "kl_coef", "entropy_coeff": "entropy_coef"}
COEFFICIENT_STATS |= {"target_entropy": "target_entropy", "moving_average_sqd_adv_norm": "squared_advantage"}
ACTOR_CRITIC_STATS = {"policy_loss": "actor_loss", "value_loss": "critic_loss"}  # of algorithms that replay

POLICY_RETURNS = "policy_returns."  # of the columns of an evaluation
PARTS = ("env_wait", "raw_obs_processing", "inference", "action_processing", "env_render")
NOT_MEASURED = {f"mean_{part}_ms": math.nan for part in PARTS}  # apart from the rest of sampling


class ResultWindow(EpisodeWindow):
    """The episodes that a result is over: all since the result before, and older ones where these are few.

    Args:
        size: the least number of episodes, as far as there have been as many.
    """

    def __init__(self, size: int) -> None:
        super().__init__(None)
        self.size, self.episodes_before = size, 0

    def begin_result(self) -> None:
        """The next result is over the episodes from now on."""
        self.episodes_before = self.episodes_total

    def add(
        self,
        returns: Iterable[float],
        lengths: Iterable[int],
        by_policy: Mapping[str, Iterable[float]] | None = None,
    ) -> None:
        """As `EpisodeWindow`; forget what the result is not over."""
        super().add(returns, lengths, by_policy)
        kept = max(self.size, self.episodes_total - self.episodes_before)
        for values in (self.returns, self.lengths, *self.by_policy.values()):
            while len(values) > kept:
                values.popleft()


class ClassicState(Callback):
    """What a Trainer needs of Lightning's hooks: evaluated episodes, counts in files and of policies, minibatches.

    Args:
        owner: the Trainer.

    Attributes:
        evaluated: returns and lengths of the last evaluation's episodes.
        evaluated_by_policy: policy id → mean returns of its agents in the episodes in which it acted (several agents).
    """

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self.evaluated: tuple[list[float], list[int]] = ([], [])
        self.evaluated_by_policy: dict[str, list[float]] = {}

    def on_postprocess_trajectory(self, *, policy: Any, postprocessed_batch: Any, original_batch: Any) -> None:
        """Let a policy change what its replay buffer stores, before callbacks see it."""
        if policy.off_policy and isinstance(typed(postprocessed_batch), Fragment):
            postprocess_stored(policy, postprocessed_batch, original_batch)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Divide each policy's rows by "sgd_minibatch_size"; the batch shows how many agents it acts for."""
        if (size := self.owner._minibatch_rows) is None or not isinstance(batch, MultiAgentBatch):
            return
        for name, part in batch.items():
            policy = pl_module.policies[name]
            if isinstance(typed(part), Fragment) and hasattr(policy, "minibatches"):
                rows = policy.config.get("sgd_minibatch_size", size)
                policy.minibatches = max(1, round(sum_over_ranks(env_steps(part)) / rows))

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Let policies follow the count of steps, as their `on_global_var_update` says."""
        for policy in trained_policies(pl_module):
            if isinstance(policy, RLlibMethods):
                policy.on_global_var_update({"timestep": policy.env_steps})

    def keep(self, played: Sequence[tuple[float, int]]) -> None:
        """Keep the episodes of an evaluation beside training, (return, length) of each."""
        self.on_validation_batch_end(None, None, None, next(iter(EvaluationDataset(lambda: played))), 0)

    def on_validation_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Keep the episodes."""
        self.evaluated = batch["episode_returns"].tolist(), batch["episode_lengths"].long().tolist()
        by_policy = {name: batch[name] for name in batch if name.startswith(POLICY_RETURNS)}
        self.evaluated_by_policy = {
            name.removeprefix(POLICY_RETURNS): values[~values.isnan()].tolist() for name, values in by_policy.items()
        }

    def state_dict(self) -> dict[str, Any]:
        """The number of results so far, and what `Trainer.from_checkpoint` makes the Trainer of."""
        return {"iteration": self.owner.iteration, **describe_trainer(self.owner)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Count on from there."""
        self.owner._iteration = int(state_dict["iteration"])


def training_result(trainer: Any, metrics: Mapping[str, Any], since: Mapping[str, float]) -> dict[str, Any]:
    """The result of some iterations of training.

    Args:
        trainer: the Trainer.
        metrics: the newest values, by this package's names, which the result has as well.
        since: `step_counts`, "env_steps" and "episodes" at the end of the result before.
    """
    window = trainer.datamodule.episode_window
    by_policy = {name: [*own] for name, own in window.by_policy.items() if own}
    collected, learned = (1000 * metrics.get(f"time/{name}_s", 0.0) for name in ("collect", "learn"))
    steps, episodes = metrics["env_steps"], window.episodes_total
    new_steps = steps - since["env_steps"]
    counts = step_counts(trainer)
    by = counted_unit(trainer.policy)
    new_trained = counts[f"num_{by}_steps_trained"] - since[f"num_{by}_steps_trained"]
    played = episode_statistics(window.returns, window.lengths, by_policy)
    return {
        **metrics,
        **played,
        "episodes_this_iter": episodes - since["episodes"],
        "episodes_total": episodes,
        "custom_metrics": {},
        "episode_media": {},
        "off_policy_estimator": {},
        "timesteps_total": steps,
        "timesteps_this_iter": new_steps,
        f"num_{by}_steps_sampled_this_iter": new_steps,
        f"num_{by}_steps_trained_this_iter": new_trained,
        "num_steps_trained_this_iter": new_trained,
        "num_healthy_workers": trainer.run_config["workers"]["num_workers"],
        "timers": {
            "sample_time_ms": collected,
            "learn_time_ms": learned,
            "sample_throughput": 1000 * new_steps / collected if collected else math.nan,
            "learn_throughput": 1000 * new_steps / learned if learned else math.nan,
        },
        "sampler_perf": {**NOT_MEASURED, "mean_sample_ms": collected / max(1, new_steps)},
        "perf": {"ram_mb": metrics.get("sys/rss_mb", math.nan)},
        "time_total_s": metrics["time/total_s"],
        "info": {"learner": learner_info(trainer.policy, metrics), **target_counts(trainer), **counts},
        **counts,
    }


def episode_statistics(
    returns: Sequence[float], lengths: Sequence[int], by_policy: Mapping[str, Sequence[float]]
) -> dict[str, Any]:
    """The greatest, least and mean return of episodes and of each policy, and their mean length.

    The lists are under "hist_stats".
    """
    histograms = {f"policy_{name}_reward": [*own] for name, own in by_policy.items()}
    return {
        "policy_reward_mean": {name: fmean(own) for name, own in by_policy.items()},
        "policy_reward_min": {name: min(own) for name, own in by_policy.items()},
        "policy_reward_max": {name: max(own) for name, own in by_policy.items()},
        "episode_reward_max": max(returns, default=math.nan),
        "episode_reward_min": min(returns, default=math.nan),
        "episode_reward_mean": fmean(returns) if returns else math.nan,
        "episode_len_mean": fmean(lengths) if lengths else math.nan,
        "hist_stats": {"episode_reward": [*returns], "episode_lengths": [*lengths], **histograms},
    }


def evaluation_result(state: ClassicState, metrics: Mapping[str, float], numbers: EpisodeStatistics) -> dict[str, Any]:
    """The result of an evaluation, under the key "evaluation" as there, with this package's names beside RLlib's.

    Args:
        state: has the episodes.
        metrics: the values by this package's names.
        numbers: what callbacks recorded of the episodes.
    """
    returns, lengths = state.evaluated
    found = episode_statistics(returns, lengths, state.evaluated_by_policy)
    found["hist_stats"] |= numbers.hist_stats()
    counted: dict[str, Any] = {"episodes_this_iter": len(returns), "timesteps_this_iter": sum(lengths)}
    counted["num_env_steps_sampled_this_iter"] = sum(lengths)
    counted["custom_metrics"] = numbers.custom_metrics()
    counted |= {"episode_media": numbers.episode_media(), "off_policy_estimator": {}}
    return {"evaluation": {**metrics, **found, **counted}}


def learner_info(policy: Any, metrics: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Policy id → its metrics of learning by both names, the same under "learner_stats", and its model's "model".

    Beside them, "td_error" `[N]` has what the rows of the last gradient step get their priorities by.
    """
    found: dict[str, dict[str, Any]] = {}
    for policy_id, own in metrics_by_policy(policy, metrics, "train/").items():
        learner = policy.policies[policy_id]
        names = LEARNER_STATS | (ACTOR_CRITIC_STATS if learner.off_policy and "policy_loss" in own else {})
        stats = values_now(learner, own) if own else {}
        stats |= {name: own[key] for key, name in names.items() if key in own} | own
        errors = learner.learner.td_errors
        found[policy_id] = {
            **stats,
            **({} if errors is None else {"td_error": errors.numpy(force=True)}),
            "learner_stats": stats,
            "model": {name.removeprefix("model/"): own[name] for name in own if name.startswith("model/")},
        }
    return found


def values_now(policy: Any, own: Mapping[str, Any]) -> dict[str, float]:
    """RLlib's statistics that are values of a policy after learning: coefficients, norms, and what follows from them.

    Args:
        policy: that learned.
        own: its metrics of learning.
    """
    held = {name: getattr(policy, of_policy, None) for name, of_policy in COEFFICIENT_STATS.items()}
    found = {
        name: value.item() if isinstance(value, Tensor) else schedule_value(value, policy.env_steps)
        for name, value in held.items()
        if value is not None
    }
    if "alpha" in own:
        found["log_alpha_value"] = math.log(own["alpha"])
    if "conservative_gap" in own and hasattr(policy, "log_min_q_weight"):
        found["cql_loss"] = own["conservative_gap"] * policy.log_min_q_weight.exp().item()
    if isinstance(policy, IMPALA | APPO):
        found["var_gnorm"] = get_total_norm(policy.model.parameters()).item()
    return found


def step_counts(trainer: Any) -> dict[str, int]:
    """Steps of environments and of agents that were sampled and learned from so far.

    A row counts each time that a gradient step of an algorithm with replay learns from it. Draws of several policies
    are of the same number of environment steps, as in RLlib.
    """
    policy = trainer.policy
    by_unit = getattr(policy, "steps_by_unit", dict.fromkeys(("env_steps", "agent_steps"), policy.env_steps))
    sampled = trained = {unit: by_unit[f"{unit}_steps"] for unit in ("env", "agent")}
    learning = [policy.policies[name] for name in policy.policies_to_train]
    if learning and all(each.off_policy for each in learning):
        rows = [each.gradient_steps * _rows_of_a_step(trainer, each) for each in learning]
        trained = {"env": max(rows), "agent": sum(rows)}
    counts = {f"num_{unit}_steps_sampled": count for unit, count in sampled.items()}
    counts |= {f"num_{unit}_steps_trained": count for unit, count in trained.items()}
    counts |= {"num_steps_sampled": sampled["env"], "num_steps_trained": trained["env"]}
    return {**counts, "agent_timesteps_total": sampled["agent"]}


def counted_unit(policy: Any) -> str:
    """What the steps of `train_batch_size` and "timesteps_total" are steps of, "env" or "agent"."""
    return getattr(policy, "count_steps_by", "env_steps").removesuffix("_steps")


def target_counts(trainer: Any) -> dict[str, int]:
    """How often target networks were updated, and after how many steps for the last time; {} if there are none."""
    found: dict[str, int] = {}
    if trainer._planned:
        return found  # `UpdateTargetNetwork` counts them
    for policy in (trainer.policy.policies[name] for name in trainer.policy.policies_to_train):
        if not policy.off_policy and not hasattr(policy, "target_update_interval"):
            continue
        interval, steps = getattr(policy, "target_update_interval", 1), policy.gradient_steps
        since = steps % interval if interval else 0  # gradient steps
        rate = getattr(_data_of(trainer, policy), "update_to_data_ratio", steps / max(1, policy.env_steps))
        found = {
            "num_target_updates": steps // interval if interval else policy.iterations,
            "last_target_update_ts": policy.env_steps - round(since / rate) if steps > since else 0,
        }
    return found


def _data_of(trainer: Any, policy: Any) -> Any:
    """What a policy draws from."""
    return trainer.datamodule.feeds.get(policy.policy_id, trainer.datamodule.source)


def _rows_of_a_step(trainer: Any, policy: Any) -> int:
    """How many rows a gradient step of a replay algorithm learns from."""
    data = _data_of(trainer, policy)
    rows = getattr(data, "batch_size", trainer.config["train_batch_size"])  # an execution plan has buffers of its own
    return rows * (data.sequence_length if hasattr(policy, "rescale") else 1)
