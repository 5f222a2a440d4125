"""RLlib's config keys of IMPALA and APPO, which count rows of a training batch that several fragments make up."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from lightning_rl.errors import ConfigError

__all__ = ["ASYNC_FIXED", "ASYNC_KEYS", "ASYNC_NO_EFFECT", "ASYNC_SPECIAL", "SUMMED_ROWS", "write_async_keys"]

ASYNC_KEYS = {"vtrace_clip_rho_threshold": "policy.clip_rho", "vtrace_clip_pg_rho_threshold": "policy.clip_pg_rho"}
ASYNC_KEYS |= {"replay_proportion": "data.replay_proportion", "replay_buffer_num_slots": "data.replay_slots"}
ASYNC_KEYS |= {"max_sample_requests_in_flight_per_worker": "data.requests_per_worker", "opt_type": "policy.optimizer"}
ASYNC_KEYS |= dict.fromkeys(("num_aggregation_workers", "num_aggregator_actors_per_learner"), "data.num_aggregators")
ASYNC_KEYS |= dict.fromkeys(("target_update_frequency", "target_update_freq"), "policy.target_update_interval")

ASYNC_FIXED: dict[str, tuple[Any, str]] = {
    "vtrace": (True, "old experience is corrected by V-trace"),
    "minibatch_buffer_size": (1, "`num_sgd_iter` passes over each batch"),
    "num_multi_gpu_tower_stacks": (1, "a Lightning strategy takes several GPUs"),
    "separate_vf_optimizer": (False, "one loss, one optimizer"),
    "_separate_vf_optimizer": (False, "one loss, one optimizer"),
}
ASYNC_NO_EFFECT = ("learner_queue_size", "learner_queue_timeout", "vtrace_drop_last_ts", "num_data_loader_buffers")
RMSPROP = {"decay": "alpha", "momentum": "momentum", "epsilon": "eps"}  # what `optimizer_kwargs` calls them
ASYNC_SPECIAL: dict[str, str] = {
    "use_kl_loss": "`policy.kl_coef`: 0 without it",
    **{key: f"`policy.optimizer_kwargs.{name}` of RMSProp" for key, name in RMSPROP.items()},
}

SUMMED_ROWS = 500  # of the batch that RLlib's defaults are for


def write_async_keys(out: dict[str, Any], given: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Sizes, the KL penalty and the clipping of gradients as this package counts them, into `out`.

    Args:
        out: what goes over the defaults, with the plain keys already in it.
        given: RLlib's keys.
        defaults: the composed config of the policy.

    Raises:
        ConfigError: `lambda` is not 1: V-trace takes no other there.
    """
    policy, data, workers = (out.setdefault(section, {}) for section in ("policy", "data", "workers"))
    if policy.pop("gae_lambda", 1.0) != 1.0:
        raise ConfigError(f"config key 'lambda'={given['lambda']!r}; with V-trace it can only be 1.0")
    rows = given.get("train_batch_size")
    if rows is not None:
        # RLlib's defaults for what is not given.
        fragment = workers.setdefault("envs_per_worker", 1) * workers.setdefault("fragment_length", 50)
        data["fragments_per_batch"] = math.ceil(rows / fragment)
        workers["count_resets"] = False  # a batch has at least that many rows of experience
    if given.get("sgd_minibatch_size"):
        policy["minibatches"] = max(1, round((rows or SUMMED_ROWS) / given["sgd_minibatch_size"]))
    elif rows is not None:
        policy["minibatches"] = 1
    if batches := policy.pop("target_update_interval", None):  # RLlib counts training steps, with all their passes
        steps = None
        if batches > 1:  # their passes are counted in gradient steps, of which a sweep has RLlib's one by default
            steps = batches * policy.get("passes", defaults["policy"]["passes"]) * policy.setdefault("minibatches", 1)
        policy["target_update_interval"] = steps
    if "clip" not in defaults["policy"] and policy.get("max_grad_norm") is not None:
        policy["max_grad_norm"] /= rows or SUMMED_ROWS  # RLlib's IMPALA sums over the rows, its APPO takes the mean
    if "clip" in defaults["policy"]:
        used = given.get("use_kl_loss", False)
        policy["kl_coef"] = policy.get("kl_coef", 1.0) if used else 0.0
    if policy.get("optimizer") == "rmsprop":
        keywords = {name: given[key] for key, name in RMSPROP.items() if key in given}
        policy["optimizer_kwargs"] = {"alpha": 0.99, "eps": 0.1, **keywords}
