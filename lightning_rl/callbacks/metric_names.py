"""The registry of metric names, which loggers write and `stop.metric` and `checkpoint.monitor` may name."""

from __future__ import annotations

from collections.abc import Iterable

from lightning_rl.errors import ConfigError, did_you_mean, short_repr

__all__ = ["EVAL_LENGTH", "EVAL_RETURN", "METRICS", "TRAIN_RETURN", "check_metric", "register_metric"]

TRAIN_RETURN = "rollout/ep_rew_mean"
EVAL_RETURN = "eval/ep_rew_mean"
EVAL_LENGTH = "eval/ep_len_mean"

METRICS: dict[str, str] = {
    TRAIN_RETURN: "mean return of the last 100 training episodes",
    "rollout/ep_len_mean": "mean length of the last 100 training episodes, steps",
    "rollout/episodes": "training episodes so far",
    "rollout/staleness": "policy updates between the weights that acted and those that learn; 0 is on-policy",
    "rollout/dropped": "A3C: gradients so far from weights that were too old, and not stepped with",
    "rollout/dropped_steps": "env steps so far of fragments that were too old to learn from (data.max_policy_lag)",
    "rollout/outstanding_mb": "MiB of fragments that were requested from workers or wait to be learned from",
    "replay/rows": "what the replay buffer can draw from: steps, for models with memory sequences",
    "replay/updates": "gradient steps on draws so far",
    "replay/late_updates": "Ape-X: priorities so far that came for rows which had been overwritten, and were dropped",
    EVAL_RETURN: "mean return of the latest evaluation",
    EVAL_LENGTH: "mean episode length of the latest evaluation, steps",
    "train/loss": "what was descended, mean over the iteration's gradient steps",
    "train/policy_loss": "loss of the policy",
    "train/value_loss": "loss of the value function",
    "train/entropy": "entropy of the action distribution, nats",
    "train/approx_kl": "estimated KL(acting policy || learning policy), nats",
    "train/first_kl": "approx_kl of the first minibatch; 0 when acting and learning policy are the same",
    "train/clip_fraction": "share of rows whose probability ratio was clipped",
    "train/explained_variance": "1 − Var(target − value) / Var(target)",
    "train/q_mean": "mean Q-value of the batches: of the best actions (DQN), of the replayed ones (SAC, TD3)",
    "train/td_error": "mean |TD error| of the batches",
    "train/support_clipped": "C51: share of the targets' mass beyond policy.v_min and policy.v_max",
    "train/alpha": "temperature of SAC",
    "train/grad_norm": "global norm of the gradients before clipping",
    "train/lr": "learning rate",
    "train/kl": "exact KL(acting policy || learning policy), nats",
    "train/kl_coef": "coefficient of the KL penalty",
    "train/exploration/epsilon": "chance of a random action",
    "train/exploration/temperature": "temperature of softmax(Q / temperature)",
    "train/exploration/scale": "scale of the noise on actions",
    "train/exploration/stddev": "deviation of the noise on weights",
    "train/exploration/intrinsic_reward": "mean intrinsic reward of the rollout",
    "train/exploration/inverse_loss": "curiosity: −log-likelihood of the action between two observations",
    "train/exploration/forward_loss": "curiosity: error of the predicted features",
    "train/exploration/distill_loss": "RND: distance to the random network",
    "train/return_mean": "ES, ARS: mean return of the perturbed policies",
    "train/return_max": "ES, ARS: of the best of them",
    "train/own_return": "ES, ARS: of the policy that was not perturbed, in iterations that try it",
    "train/weights_norm": "ES, ARS: 2-norm of the weights",
    "self_play/win_rate": "share of the newest training games against copies that the policy in training won",
    "self_play/draw_rate": "share of them without a winner",
    "self_play/loss_rate": "share of them that it lost",
    "self_play/elo": "Elo rating of the policy in training; self_play/<copy>/elo: of a copy",
    "self_play/league_size": "copies in the league",
    "self_play/copies": "copies that have joined the league so far",
    "self_play/copied_at": "self_play/<copy>/copied_at: env steps when the copy was made",
    "time/iterations": "iterations so far",
    "time/fps": "environment steps per second over the last iteration, evaluation not counted",
    "time/collect_s": "seconds collecting experience in the last iteration",
    "time/learn_s": "seconds learning in the last iteration",
    "time/eval_s": "seconds of the latest evaluation",
    "time/total_s": "seconds of training so far, earlier sessions of a resumed run included",
    "sys/rss_mb": "resident memory of this process, MiB",
    "sys/worker_restarts": "rollout processes so far that took the place of others: of dead, hanging or too large ones",
    "sys/env_restarts": "times so far that a worker's environments were made anew, because one raised or gave NaN",
}

# Names from a custom model's metrics() and a custom exploration's info() are not known beforehand.
OPEN_PREFIXES = ("train/model/", "train/exploration/")


def register_metric(name: str, description: str) -> None:
    """Register a metric of your own, such as one that `on_train_result` adds, for `stop` and `monitor`.

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
