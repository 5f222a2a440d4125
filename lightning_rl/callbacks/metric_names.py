"""The registry of metric names, which loggers write and `stop.metric` and `checkpoint.monitor` may name."""

from __future__ import annotations

from collections.abc import Iterable

from lightning_rl.errors import ConfigError, did_you_mean, short_repr

__all__ = [
    "ESTIMATORS",
    "EVAL_LENGTH",
    "EVAL_RETURN",
    "METRICS",
    "RETURNS",
    "TRAIN_RETURN",
    "check_metric",
    "register_metric",
]

TRAIN_RETURN = "rollout/ep_rew_mean"
EVAL_RETURN = "eval/ep_rew_mean"
EVAL_LENGTH = "eval/ep_len_mean"

ESTIMATORS = {  # of a policy's value from recorded episodes
    "is": "importance sampling",
    "pdis": "per-decision importance sampling",
    "wis": "weighted importance sampling",
    "dm": "the direct method",
    "dr": "the doubly robust estimator",
}
RETURNS = (EVAL_RETURN, TRAIN_RETURN, *(f"eval/{name}" for name in ("wis", "dr", "dm", "pdis", "is")))
"""Metrics that are a policy's return, the most meaningful first; estimates are all that a run without episodes has."""
METRICS: dict[str, str] = {
    TRAIN_RETURN: "mean return of the last 100 training episodes",
    "rollout/ep_len_mean": "mean length of the last 100 training episodes, in steps",
    "rollout/episodes": "number of training episodes so far",
    "rollout/policy_lag": "policy updates between the weights that acted and the current weights; 0 is on-policy",
    "rollout/dropped": "A3C: number of gradients discarded so far because their weights were too old",
    "rollout/dropped_steps": "env steps discarded so far because their fragments were too old (data.max_policy_lag)",
    "rollout/outstanding_mb": "size of the fragments that are requested or waiting for the learner, in MiB",
    "replay/rows": "number of transitions that can be sampled from the replay buffer; sequences for recurrent models",
    "replay/updates": "number of gradient steps on replayed batches so far",
    "replay/late_updates": "Ape-X: priority updates dropped so far because their transitions had been overwritten",
    EVAL_RETURN: "mean return of the latest evaluation",
    EVAL_LENGTH: "mean episode length of the latest evaluation, in steps",
    "eval/behavior": "off-policy estimation: mean discounted return of the recorded episodes",
    **{
        f"eval/{name}": f"mean discounted return of the policy, estimated from recorded episodes by {method}"
        for name, method in ESTIMATORS.items()
    },
    **{
        f"eval/{name}_{end}": f"{side} end of the confidence interval of eval/{name}"
        for name in ("behavior", *ESTIMATORS)
        for end, side in (("low", "lower"), ("high", "upper"))
    },
    "eval/effective_episodes": "number of recorded episodes that the importance ratios leave effectively",
    "eval/mean_ratio": "mean importance ratio of recorded episodes; 1 in expectation",
    "train/loss": "total loss, averaged over the iteration's gradient steps",
    "train/policy_loss": "policy loss",
    "train/value_loss": "value function loss",
    "train/entropy": "entropy of the action distribution, in nats",
    "train/approx_kl": "estimated KL(acting policy || learning policy), in nats",
    "train/first_kl": "approx_kl of the first minibatch; 0 if the acting and learning policies are identical",
    "train/clip_fraction": "fraction of transitions whose probability ratio was clipped",
    "train/explained_variance": "explained variance of the value function: 1 − Var(target − value) / Var(target)",
    "train/q_mean": "mean Q-value over the batches, for the greedy actions (DQN) or the replayed actions (SAC, TD3)",
    "train/q_min": "lowest of these Q-values in a batch, averaged over the batches",
    "train/q_max": "highest of these Q-values in a batch, averaged over the batches",
    "train/td_error": "mean absolute TD error over the batches",
    "train/conservative_gap": "CQL: amount by which the Q-values of other actions exceed those of the recorded ones",
    "train/expectile_loss": "IQL: loss of V(s), an expectile of the Q-values of the recorded actions",
    "train/support_clipped": "C51: fraction of the target distribution outside policy.v_min and policy.v_max",
    "train/min_q_weight": "CQL: weight of that gap, if it is learned",
    "train/alpha": "SAC's entropy temperature α",
    "train/alpha_loss": "loss of that temperature, if it is learned",
    "train/grad_norm": "global norm of the gradients before clipping",
    "train/lr": "learning rate",
    "train/kl": "exact KL(acting policy || learning policy), in nats",
    "train/kl_coef": "coefficient of the KL penalty",
    "train/exploration/epsilon": "probability ε of a random action",
    "train/exploration/temperature": "temperature of softmax(Q / temperature)",
    "train/exploration/scale": "scale of the action noise",
    "train/exploration/stddev": "standard deviation of the parameter noise",
    "train/exploration/intrinsic_reward": "mean intrinsic reward over the rollout",
    "train/exploration/inverse_loss": "curiosity: negative log-likelihood of the action between two observations",
    "train/exploration/forward_loss": "curiosity: error of the forward model's predicted features",
    "train/exploration/distill_loss": "RND: error of predicting the random network's features",
    "train/return_mean": "ES, ARS: mean return of the perturbed policies",
    "train/return_max": "ES, ARS: highest return among the perturbed policies",
    "train/own_return": "ES, ARS: mean return of the unperturbed policy, in iterations that evaluate it",
    "train/weights_norm": "ES, ARS: 2-norm of the weights",
    "self_play/win_rate": "fraction of recent training games against copies that the training policy won",
    "self_play/draw_rate": "fraction of these games that were drawn",
    "self_play/loss_rate": "fraction of these games that the training policy lost",
    "self_play/elo": "Elo rating of the training policy; self_play/<copy>/elo: rating of a copy",
    "self_play/league_size": "number of copies in the league",
    "self_play/copies": "number of copies that have joined the league so far",
    "self_play/copied_at": "self_play/<copy>/copied_at: env steps at which the copy was made",
    "time/iterations": "number of iterations so far",
    "time/fps": "env steps per second over the last iteration, excluding evaluation",
    "time/collect_s": "seconds spent collecting experience in the last iteration",
    "time/learn_s": "seconds spent learning in the last iteration",
    "time/eval_s": "duration of the latest evaluation, in seconds",
    "time/total_s": "seconds of training so far, including earlier sessions of a resumed run",
    "sys/rss_mb": "resident memory of this process, in MiB",
    "sys/worker_restarts": "rollout processes replaced so far because they died, hung, or used too much memory",
    "sys/env_restarts": "times so far that a worker's environments were recreated after an error or NaN",
}

# Names from a custom model's metrics() and a custom exploration's info() are not known beforehand.
OPEN_PREFIXES = ("train/model/", "train/exploration/")


def register_metric(name: str, description: str) -> None:
    """Register a custom metric, such as one that `on_train_result` adds, for `stop` and `monitor`.

    Raises:
        ConfigError: the name has no group.
    """
    if "/" not in name.strip("/"):
        raise ConfigError(f"metric name {name!r} has no group: write it as group/name, such as 'custom/{name}'")
    METRICS[name] = description


def check_metric(key: str, name: str, also: Iterable[str] = ()) -> None:
    """Raise an error for a metric that is never written.

    Args:
        key: the config key that names the metric, for the message.
        name: the metric.
        also: further names known to the caller.

    Raises:
        ConfigError: the metric is not known.
    """
    known = [*METRICS, *also]
    group, _, rest = str(name).partition("/")
    of_one_policy = f"{group}/{rest.partition('/')[2]}"  # of several agents: train/<policy>/loss
    if (
        name in known
        or of_one_policy in METRICS
        or any(n.startswith(OPEN_PREFIXES) for n in (str(name), of_one_policy))
    ):
        return
    raise ConfigError(
        f"{key}={short_repr(name)}: no such metric.{did_you_mean(name, known)} Metrics: {', '.join(known)}"
    )
