"""RLlib's config keys of algorithms that replay, whose counts it takes in rows and environment steps."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

from lightning_rl.errors import ConfigError, did_you_mean

__all__ = [
    "ITERATION",
    "REPLAY_FIXED",
    "REPLAY_KEYS",
    "REPLAY_NO_EFFECT",
    "REPLAY_SPECIAL",
    "ROW_COUNTS",
    "draws_in_lockstep",
    "start_with_a_batch",
    "without_replay_sections",
    "write_replay_keys",
]

REPLAY_KEYS = {"buffer_size": "data.capacity", "learning_starts": "data.learning_starts", "n_step": "data.n_step"}
REPLAY_KEYS |= {"prioritized_replay": "data.prioritized", "prioritized_replay_alpha": "data.priority_alpha"}
REPLAY_KEYS |= {"prioritized_replay_eps": "data.priority_eps", "store_buffer_in_checkpoints": "data.save_replay"}
REPLAY_KEYS |= {"replay_sequence_length": "data.sequence_length", "num_replay_buffer_shards": "data.num_shards"}
REPLAY_KEYS |= dict.fromkeys(("burn_in", "replay_burn_in"), "data.burn_in")
REPLAY_KEYS |= {"worker_side_prioritization": "data.initial_priorities", "double_q": "policy.double"}
REPLAY_KEYS |= {name: f"policy.{name}" for name in ("dueling", "hiddens", "noisy", "sigma0", "num_atoms", "v_min")}
REPLAY_KEYS |= {name: f"policy.{name}" for name in ("v_max", "tau", "policy_delay", "target_noise_clip")}
REPLAY_KEYS |= {name: f"policy.{name}" for name in ("initial_alpha", "target_entropy")}
REPLAY_KEYS |= {"use_h_function": "policy.rescale", "h_function_epsilon": "policy.rescale_epsilon"}
REPLAY_KEYS |= {"adam_epsilon": "policy.optimizer_kwargs.eps", "l2_reg": "policy.optimizer_kwargs.weight_decay"}

REPLAY_FIXED: dict[str, tuple[Any, str]] = {
    "use_state_preprocessor": (False, "the model's layers come first in actor and critic anyway"),
    "use_huber": (False, "TD errors of these critics are squared"),
    "huber_threshold": (1.0, "only with `use_huber`"),
    "zero_init_states": (False, "stored states begin a sequence, and `burn_in` refreshes them"),
    "before_learn_on_batch": (None, "`on_learn_on_batch` of a callback"),
    "_deterministic_loss": (False, "it is for RLlib's own tests"),
    "_use_beta_distribution": (False, "actions are squashed Gaussians"),
}
REPLAY_NO_EFFECT = ("compress_observations", "max_weight_sync_delay", "no_local_replay_buffer")
REPLAY_NO_EFFECT += ("replay_buffer_shards_colocated_with_driver", "debug", "multiagent_sync_replay")

ITERATION = ("timesteps_per_iteration", "min_sample_timesteps_per_iteration", "min_sample_timesteps_per_reporting")
BETA = ("prioritized_replay_beta", "final_prioritized_replay_beta", "prioritized_replay_beta_annealing_timesteps")
RATES = {"actor": "actor_learning_rate", "critic": "critic_learning_rate", "alpha": "entropy_learning_rate"}
ROW_COUNTS = ("train_batch_size", "training_intensity")  # of a trainer, for all its policies that replay
LAYERS = ("fcnet_hiddens", "fcnet_activation")
TOGETHER = "the layers of actor and critic: `model`, `policy.critic_hiddens`"
REPLAY_SPECIAL: dict[str, str] = {
    "training_intensity": "rows trained for each row sampled; `data.update_to_data_ratio` counts gradient steps",
    "target_network_update_freq": "env steps: `policy.target_update_interval`, gradient steps",
    **dict.fromkeys(ITERATION, "least env steps of a result; with replay `data.fragments_per_iteration`"),
    **dict.fromkeys(BETA, "`data.priority_beta`, a schedule"),
    "twin_q": "`policy.num_critics`: 2 or 1",
    **dict.fromkeys(("target_noise", "smooth_target_policy"), "`policy.target_noise`, 0 without smoothing"),
    **dict.fromkeys(("optimization", "actor_lr", "critic_lr"), "`policy.lr`, `critic_lr_scale`, `alpha_lr_scale`"),
    **dict.fromkeys(("Q_model", "policy_model", "actor_hiddens", "critic_hiddens"), TOGETHER),
    **dict.fromkeys(("actor_hidden_activation", "critic_hidden_activation"), TOGETHER),
    "replay_buffer_config": "its keys are those of this page; a type with Prioritized in its name: `data.prioritized`",
    "optimizer": "its keys are those of this page",
    "storage_unit": "rows are stored, and recurrent policies draw sequences of them: timesteps or sequences",
}

BUFFER = {"capacity": "buffer_size", "replay_batch_size": "train_batch_size"}  # names inside replay_buffer_config
BUFFER |= {name: f"prioritized_replay_{name}" for name in ("alpha", "beta", "eps")}
BUFFER |= {name: name for name in (*REPLAY_KEYS, *REPLAY_FIXED, *REPLAY_NO_EFFECT, *BETA, "storage_unit")}
UNITS = ("timesteps", "sequences")


def draws_in_lockstep(given: Mapping[str, Any]) -> bool:
    """Whether `replay_mode` of `multiagent` or `replay_buffer_config` lets several policies draw the same steps.

    Args:
        given: RLlib's keys.

    Raises:
        ConfigError: there is no such mode.
    """
    sections = (given.get(key) or {} for key in ("multiagent", "replay_buffer_config"))
    modes = [section.get("replay_mode", "independent") for section in sections]
    if set(modes) - {"independent", "lockstep"}:
        raise ConfigError(f"replay_mode={modes!r}; expected 'independent' or 'lockstep'")
    return "lockstep" in modes


def without_replay_sections(given: Mapping[str, Any]) -> dict[str, Any]:
    """`replay_buffer_config` and Ape-X's `optimizer` as plain keys beside the others; `multiagent` without replay_mode.

    Args:
        given: RLlib's keys.

    Raises:
        ConfigError: such a section has a key that means nothing here.
    """
    flat = dict(given)
    several = dict(flat.pop("multiagent", None) or {})
    several.pop("replay_mode", None)
    buffer = dict(flat.pop("replay_buffer_config", None) or {})
    buffer.pop("replay_mode", None)
    if several:
        flat["multiagent"] = several
    kind = str(buffer.pop("type", ""))
    if kind:
        buffer.setdefault("prioritized_replay", "Prioritized" in kind)
    buffer |= dict(flat.pop("optimizer", None) or {})
    for key, value in buffer.items():
        if key not in BUFFER:
            raise ConfigError(
                f"replay_buffer_config has no key {key!r} here.{did_you_mean(key, BUFFER)} Keys: {', '.join(BUFFER)}"
            )
        flat.setdefault(BUFFER[key], value)
    return flat


def write_replay_keys(out: dict[str, Any], given: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Counts and rates as this package counts them, into `out`.

    Args:
        out: what goes over the defaults, with the plain keys already in it.
        given: RLlib's keys.
        defaults: the composed config of the policy.

    Raises:
        ConfigError: a key has a value that means nothing here.
    """
    data, policy = out.setdefault("data", {}), out.setdefault("policy", {})
    if (unit := getattr(given.get("storage_unit"), "value", given.get("storage_unit"))) not in (None, *UNITS):
        raise ConfigError(f"config key 'storage_unit'={unit!r}; expected {' or '.join(UNITS)}")
    if data.get("sequence_length") == -1:
        data["sequence_length"] = (given.get("model") or {}).get("max_seq_len", defaults["model"]["max_seq_len"])
    _counts(data, given, {**defaults, "workers": {**defaults["workers"], **out.get("workers", {})}})
    if "fragments_per_iteration" in data:
        out.setdefault("workers", {})["count_resets"] = False  # a result has at least that many rows of experience
    freq = given.get("target_network_update_freq")
    if freq is not None and "target_update_interval" in defaults["policy"]:
        intensity = data.get("update_to_data_ratio", defaults["data"]["update_to_data_ratio"])
        policy["target_update_interval"] = max(1, round(freq * intensity))
    elif freq:
        raise ConfigError(
            f"config key 'target_network_update_freq'={freq!r}: the targets follow by tau after each gradient step; "
            "here it can only be 0"
        )
    if "twin_q" in given:
        policy["num_critics"] = 2 if given["twin_q"] else 1
    if given.get("smooth_target_policy") is False:
        policy["target_noise"] = 0.0
    elif "target_noise" in given or given.get("smooth_target_policy"):
        policy["target_noise"] = given.get("target_noise", 0.2)
    _rates(policy, given)
    _networks(out, given, defaults)


def _counts(data: dict[str, Any], given: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    workers = defaults["workers"]
    logical = workers.get("logical_workers") or max(1, workers["num_workers"])
    together = workers["fragment_length"] * workers["envs_per_worker"]
    asynchronous = "num_shards" in defaults["data"]
    fragment = together if asynchronous else together * logical  # env steps of what the data pipeline calls a fragment
    sequence = data.get("sequence_length", defaults["data"]["sequence_length"])
    in_sequences = "rescale" in defaults["policy"]
    rows = given.get("train_batch_size")
    if rows is not None:
        data["batch_size"] = max(1, rows // sequence) if in_sequences else rows
    batch = data.get("batch_size", defaults["data"]["batch_size"]) * (sequence if in_sequences else 1)
    if given.get("training_intensity") is not None:  # rows trained for each row sampled
        data["update_to_data_ratio"] = given["training_intensity"] / batch
    elif not asynchronous:
        data["update_to_data_ratio"] = 1.0 / fragment
    steps = next((given[key] for key in ITERATION if given.get(key)), None)
    if steps is not None:
        data["fragments_per_iteration"] = math.ceil(steps / fragment)
    first, last, after = (given.get(key) for key in BETA)
    if last is not None and after:
        first = 0.4 if first is None else first  # RLlib's
        data["priority_beta"] = first if first == last else [[0, first], [after, last]]
    elif first is not None:
        data["priority_beta"] = first


def start_with_a_batch(data: dict[str, Any], defaults: Mapping[str, Any]) -> None:
    """Raise `learning_starts` to the rows of a batch, with a warning, where it is below.

    Args:
        data: what goes over the defaults.
        defaults: the composed config of the policy.
    """
    sizes = {**defaults["data"], **data}
    batch = sizes["batch_size"] * (sizes["sequence_length"] if "rescale" in defaults["policy"] else 1)
    if isinstance(starts := data.get("learning_starts"), int) and starts < batch:
        warnings.warn(
            f"config key 'learning_starts'={starts}: a batch has {batch} rows, and the buffer has them after {batch} "
            "steps; learning starts then",
            stacklevel=4,
        )
        data["learning_starts"] = batch


def _rates(policy: dict[str, Any], given: Mapping[str, Any]) -> None:
    """SAC's and DDPG's learning rates: the actor's is `lr`, the others are shares of it."""
    optimization = dict(given.get("optimization") or {})
    rates = {part: optimization.pop(key) for part, key in RATES.items() if key in optimization}
    rates |= {part: given[f"{part}_lr"] for part in ("actor", "critic") if f"{part}_lr" in given}
    if optimization:
        key = next(iter(optimization))
        raise ConfigError(f"optimization has no key {key!r} here. Keys: {', '.join(RATES.values())}")
    if not rates:
        return
    base = rates.pop("actor", None) or policy.get("lr")
    if not isinstance(base, int | float):
        raise ConfigError(f"config key 'optimization'={given.get('optimization')!r}: give actor_learning_rate too")
    policy["lr"] = base
    policy.setdefault("optimizer_kwargs", None)  # these rates are for Adam's own momentum
    policy |= {f"{part}_lr_scale": rate / base for part, rate in rates.items()}


def _networks(out: dict[str, Any], given: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """`policy_model` and `Q_model` (DDPG: actor_hiddens …) as the one model section, and SAC's `critic_hiddens`."""
    actor, critic = dict(given.get("policy_model") or {}), dict(given.get("Q_model") or {})
    for part, model in (("actor", actor), ("critic", critic)):
        for key, name in (("hiddens", LAYERS[0]), ("hidden_activation", LAYERS[1])):
            if f"{part}_{key}" in given:
                model[name] = given[f"{part}_{key}"]
    own = defaults["model"]
    if "critic_hiddens" in defaults["policy"] and LAYERS[0] in {**actor, **critic}:
        out["policy"]["critic_hiddens"] = critic.pop(LAYERS[0], own[LAYERS[0]])
        critic[LAYERS[0]] = actor.setdefault(LAYERS[0], own[LAYERS[0]])
    for key in {**actor, **critic}:
        of_actor, of_critic = (model.get(key, own.get(key)) for model in (actor, critic))
        if of_actor != of_critic and (of_actor or of_critic):  # None and [] are both no layers
            raise ConfigError(
                f"{key}={of_actor!r} of the actor (policy_model) and {of_critic!r} of the critics (Q_model); here both "
                "have the same layers: give both the same"
            )
    if actor or critic:
        out["model"] = {**critic, **actor}
