"""Errors that users can meet, and helpers for their messages: the nearest known name, why an import failed."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import sys
import traceback
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any

__all__ = [
    "MUJOCO_ADVICE",
    "USER_ERRORS",
    "CheckpointError",
    "ConfigError",
    "EnvApiError",
    "EnvError",
    "NonFiniteError",
    "RankError",
    "SaveError",
    "UnsupportedSpaceError",
    "UntrustedError",
    "check_at_least_one",
    "count_in_file",
    "did_you_mean",
    "drawing_advice",
    "first_line",
    "has_import_path",
    "import_object",
    "import_path",
    "is_dotted_path",
    "looked_at_first",
    "named_here",
    "names_attribute",
    "no_such_key",
    "note_name",
    "object_at",
    "place_of",
    "printable",
    "short_repr",
    "unknown_key",
]

CALLERS = ("lightning_rl", "gymnasium", "pettingzoo", "numpy")  # packages that call others' code, or are called by it
SHOWN = 100  # characters of a value in a message

MUJOCO_ADVICE = "without a display, MuJoCo draws if you export MUJOCO_GL=egl (a GPU) or MUJOCO_GL=osmesa (libosmesa)"


named_here: set[str] = set()
"""Dotted import paths that the user has typed or passed as objects in this process: files may name these as well."""
looked_at_first: ContextVar[Callable[[str], None] | None] = ContextVar("looked_at_first", default=None)
"""Called with each path before it is imported, while objects described by a file are built (`trust.py`)."""

# Key of another library → the keys here that mean it; if there are several, the one that the config has.
SYNONYMS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("learning_rate", "step_size", "stepsize", "alpha_lr"), ("policy.lr",)),
    **dict.fromkeys(("discount", "discount_factor"), ("policy.gamma",)),
    **dict.fromkeys(("lambda", "lam", "lambda_", "gae_lam"), ("policy.gae_lambda", "policy.vtrace_lambda")),
    **dict.fromkeys(
        ("clip_range", "clip_coef", "clip_param", "clip_eps", "clip_epsilon", "eps_clip"), ("policy.clip",)
    ),
    **dict.fromkeys(("clip_range_vf", "clip_vloss"), ("policy.value_clip",)),
    "vf_clip_param": ("policy.value_loss_clip",),
    **dict.fromkeys(("ent_coef", "entropy_coeff", "entropy_weight"), ("policy.entropy_coef", "policy.initial_alpha")),
    **dict.fromkeys(("vf_coef", "vf_loss_coeff", "value_loss_coef"), ("policy.value_coef",)),
    **dict.fromkeys(("n_epochs", "num_epochs", "update_epochs", "num_sgd_iter", "epochs"), ("policy.passes",)),
    **dict.fromkeys(
        ("batch_size", "minibatch_size", "num_minibatches", "n_minibatches", "sgd_minibatch_size"),
        ("data.batch_size", "policy.minibatches"),
    ),
    **dict.fromkeys(("grad_clip", "gradient_clip", "gradient_clip_val", "clip_grad_norm"), ("policy.max_grad_norm",)),
    **dict.fromkeys(("n_steps", "num_steps", "rollout_fragment_length", "horizon"), ("workers.fragment_length",)),
    **dict.fromkeys(("n_envs", "num_envs", "num_envs_per_worker", "num_env"), ("workers.envs_per_worker",)),
    **dict.fromkeys(("num_env_runners", "n_workers", "num_rollout_workers", "num_processes"), ("workers.num_workers",)),
    **dict.fromkeys(
        ("timesteps", "total_timesteps", "max_steps", "n_timesteps", "num_timesteps", "timesteps_total"),
        ("total_env_steps",),
    ),
    **dict.fromkeys(("buffer_size", "replay_size", "memory_size", "replay_buffer_size"), ("data.capacity",)),
    **dict.fromkeys(
        ("gradient_steps", "train_freq", "train_frequency", "training_intensity", "utd_ratio", "replay_ratio"),
        ("data.update_to_data_ratio",),
    ),
    **dict.fromkeys(("warmup_steps", "start_steps"), ("data.learning_starts",)),
    **dict.fromkeys(("staleness", "max_staleness"), ("data.max_policy_lag",)),
    **dict.fromkeys(("target_network_update_freq", "target_update_freq"), ("policy.target_update_interval",)),
    **dict.fromkeys(
        ("normalize_advantage", "normalize_advantages", "norm_adv", "standardize_fields"),
        ("policy.standardize_advantages",),
    ),
    **dict.fromkeys(
        ("norm_reward", "normalize_reward", "reward_scaling", "reward_normalization", "clip_rewards"),
        ("policy.reward_filter",),
    ),
    **dict.fromkeys(("norm_obs", "normalize_obs", "normalize_observation"), ("policy.observation_filter",)),
    "anneal_lr": ("policy.lr",),
    **dict.fromkeys(("polyak", "soft_update"), ("policy.tau",)),
    **dict.fromkeys(
        ("net_arch", "hidden_sizes", "hidden_dims", "hidden_size", "hiddens", "layers"), ("model.fcnet_hiddens",)
    ),
    **dict.fromkeys(("activation_fn", "activation"), ("model.fcnet_activation",)),
    **dict.fromkeys(("exploration_initial_eps", "start_e", "epsilon"), ("exploration.initial_epsilon",)),
    **dict.fromkeys(("exploration_final_eps", "end_e"), ("exploration.final_epsilon",)),
    **dict.fromkeys(("exploration_fraction", "epsilon_decay"), ("exploration.epsilon_timesteps",)),
    **dict.fromkeys(("eval_freq", "eval_every", "evaluation_interval"), ("evaluation.every_env_steps",)),
    **dict.fromkeys(("n_eval_episodes", "eval_episodes"), ("evaluation.episodes",)),
    "max_time_fraction": ("evaluation.max_share",),
    **dict.fromkeys(("reward_threshold", "target_reward"), ("stop.return",)),
    **dict.fromkeys(("gradient_accumulation_steps", "accumulate_grad_batches"), ("policy.microbatches",)),
    **dict.fromkeys(("env_id", "env_name", "gym_id"), ("env.id",)),
    **dict.fromkeys(("device", "num_gpus", "cuda", "gpus"), ("trainer.accelerator",)),
}


class ConfigError(ValueError):
    """A key, a value or a combination in the configuration that cannot work.

    Args:
        message: names the value, what is expected, and the next step.
        key: the dotted config key that is wrong, such as "policy.lr"; `None`: the message is not about one key.
        value: the value of that key. In another process, text stands for a value that is neither a number nor text.
    """

    def __init__(self, message: object, *, key: str | None = None, value: Any = None) -> None:
        super().__init__(message)
        self.key, self.value = key, value

    def __reduce__(self) -> tuple[Any, ...]:
        """How the error goes to another process: without a value that might not be pickled, such as a lock."""
        plain = self.value is None or isinstance(self.value, int | float | str)
        return type(self), self.args, {**vars(self), "value": self.value if plain else short_repr(self.value)}


class UnsupportedSpaceError(ValueError):
    """A space (or a model) that the algorithm does not support; the message names what it supports."""


class EnvError(RuntimeError):
    """An environment that cannot be created, raises, or breaks the Gymnasium API."""


class EnvApiError(EnvError):
    """An environment that breaks its API in a way that a new one would repeat, so that it is not replaced."""


class CheckpointError(RuntimeError):
    """A checkpoint that is missing, damaged, or of something else than expected."""


class SaveError(CheckpointError):
    """A file of a run that could not be written; the message names it, the reason, and the files that exist."""


class UntrustedError(CheckpointError):
    """A checkpoint that names code which the user does not trust. Other files of the run would name it as well."""


class NonFiniteError(FloatingPointError):
    """A loss, gradient or statistic that is NaN or infinite."""


class RankError(RuntimeError):
    """Another process of the run failed or died; the message names it."""


USER_ERRORS = (CheckpointError, ConfigError, EnvError, NonFiniteError, UnsupportedSpaceError)
"""Errors whose cause the user can fix: reported in one line, and raised as they are where another process had them."""


def check_at_least_one(prefix: str = "", **numbers: int) -> None:
    """Refuse numbers below 1.

    Raises:
        ConfigError: names the first of them, with `prefix` before its name.
    """
    for name, number in numbers.items():
        if number < 1:
            raise ConfigError(f"{prefix}{name}={number}; expected at least 1", key=f"{prefix}{name}", value=number)


def count_in_file(entry: str, value: Any) -> int:
    """Check that an entry of a checkpoint is a count, and return it.

    Raises:
        CheckpointError: it is not a whole number from 0 to 2⁵³; names the entry.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**53:
        raise CheckpointError(
            f"{entry}={short_repr(value)} cannot be restored; expected a whole number from 0 to 2^53: the file was "
            "changed"
        )
    return value


def did_you_mean(word: str, known: Iterable[Any]) -> str:
    """The sentence " Did you mean 'x'?" with the nearest known name, or "" if none is near, whatever the case."""
    written, names = str(word)[:SHOWN], [str(name) for name in known]
    close = difflib.get_close_matches(written, names, n=1, cutoff=0.6)
    if not close:
        lower = {name.lower(): name for name in names}
        close = [lower[name] for name in difflib.get_close_matches(written.lower(), lower, n=1, cutoff=0.6)]
    return f" Did you mean {close[0]!r}?" if close else ""


def unknown_key(section: str, key: str, known: Iterable[str], elsewhere: Iterable[str] = ()) -> str:
    """Message for a key that a section does not have: its full name, a suggestion, and the keys that exist.

    Args:
        section: dotted, or "" for a whole config.
        key: without the section.
        known: the section's keys.
        elsewhere: dotted keys of the whole config, if they are known.
    """
    prefix = f"{section}." if section else ""
    known = list(known)
    elsewhere = set(elsewhere)
    everywhere = {*elsewhere, *(prefix + name for name in known)}
    synonyms = SYNONYMS.get(key.lower(), ())
    meant = [name for name in synonyms if name in everywhere] or ([] if elsewhere else list(synonyms))
    near = difflib.get_close_matches(key[:SHOWN], known, n=1) or [name for name in known if key.startswith(name)]
    suggested = meant or [prefix + name for name in near]
    suggestion = f" Did you mean {suggested[0]!r}?" if suggested else ""
    listed = f" Keys{f' of {section}' if section else ''}: {', '.join(known) or 'none'}"
    return f"no key {short_repr(prefix + key)}.{suggestion}{listed}"


def no_such_key(key: str, known: Iterable[str], otherwise: str = "") -> str:
    """Message for a dotted key that a whole config does not have, with a suggestion.

    Args:
        key: the key that the user wrote; never suggested.
        known: all dotted keys of the config.
        otherwise: text for a key without a similar one.
    """
    known = [other for other in known if other != key]
    section, _, name = key.rpartition(".")
    siblings = [other.rpartition(".")[2] for other in known if other.rpartition(".")[0] == section]
    if section and siblings:
        return unknown_key(section, name, [sibling for sibling in siblings if sibling != "_target_"], known)
    meant = [other for other in SYNONYMS.get(key.lower(), ()) if other in known]
    same_name = meant or [other for other in known if other.rpartition(".")[2] == key]
    suggestion = f" Did you mean {same_name[0]!r}?" if same_name else did_you_mean(key, known)
    return f"no key {short_repr(key)}.{suggestion or otherwise}"


def drawing_advice(error: Exception) -> str:
    """What to do about an error of an environment that draws; "" for an unknown one."""
    if "pygame" in str(error):
        return 'pip install -e ".[video]" has pygame'
    return MUJOCO_ADVICE if "mujoco" in sys.modules else ""


def printable(text: str) -> str:
    """Text from a file without its control characters, which could command a terminal."""
    return "".join(character for character in text if character.isprintable())


def short_repr(value: Any) -> str:
    """`repr` of a value on one line, shortened if it is long."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 20]} … {text[-10:]} ({len(text)} characters)"


def place_of(error: BaseException) -> str:
    """The line of someone else's code at which an error came up, as " (file, line 3)"; "" if there is none."""
    lines = [
        f" ({frame.f_code.co_filename}, line {line})"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__")).partition(".")[0] not in CALLERS
    ]
    return lines[-1] if lines else ""


def first_line(error: Exception) -> str:
    """The first line of an error's message."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def import_object(path: str) -> Any:
    """Import the object at a path: "pkg.module:Name" or "pkg.module.Name"; after a colon, dots reach into the object.

    Raises:
        ConfigError: the path has another form, its module does not exist, or has no such name. An exception that the
            module's own code raises comes through as it is.
        CheckpointError, ConfigError: a file names the path, and the user does not trust it.
    """
    note_name(path)
    return object_at(path)


def is_dotted_path(text: str) -> bool:
    """Whether a text has the form of a dotted import path, "pkg.module" or "pkg.module.Name"."""
    return "." in text and all(part.isidentifier() for part in text.split("."))


def names_attribute(path: str) -> bool:
    """Whether a path "module:name" names an object in the module, "Maze" or "Outer.Maze", not a Gymnasium id."""
    return all(part.isidentifier() for part in path.partition(":")[2].split("."))


def note_name(path: str) -> None:
    """Record that the user has named this path; while a file is loaded, check that the user trusts the path.

    Raises:
        CheckpointError, ConfigError: a file names the path, and the user does not trust it.
    """
    look = looked_at_first.get()
    if look is None:
        named_here.add(path.replace(":", "."))
    else:
        look(path)


def object_at(path: str) -> Any:
    """Import the object at a path without checking whether the path is trusted; else as `import_object`.

    Raises:
        ConfigError: see there.
    """
    module_name, _, attribute = path.partition(":") if ":" in path else path.rpartition(".")
    if not all([*module_name.split("."), *attribute.split(".")]):
        raise ConfigError(f"{short_repr(path)} is not an import path; expected 'package.module:Name'")
    try:
        found = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if not f"{module_name}.".startswith(f"{missing}."):
            raise  # the module exists; something that it imports does not
        raise ConfigError(f"{short_repr(path)}: {_no_module(missing)}") from error
    owner = f"module {module_name!r}"
    for name in attribute.split("."):
        if not hasattr(found, name):
            known = [*dir(found), *(module.name for module in pkgutil.iter_modules(getattr(found, "__path__", ())))]
            raise ConfigError(
                f"{short_repr(path)}: {owner} has no attribute {short_repr(name)}.{did_you_mean(name, known)}"
            )
        found, owner = getattr(found, name), repr(name)
    return found


def has_import_path(found: Any) -> bool:
    """Whether another process finds a class or function by a path: not a lambda, a local function, or an object."""
    module = getattr(found, "__module__", None)
    return hasattr(found, "__qualname__") and "<" not in found.__qualname__ and module not in (None, "__main__")


def import_path(found: Any) -> str:
    """The path by which `import_object` finds a class or function: its own name, or else its name in its module."""
    names = vars(sys.modules[found.__module__]) if found.__module__ in sys.modules else {}
    name = found.__qualname__
    if "." not in name and names.get(name) is not found:
        name = next((other for other, value in names.items() if value is found), name)
    named_here.add(f"{found.__module__}.{name}")
    return f"{found.__module__}:{name}"


def _no_module(missing: str) -> str:
    """Explain why the module `missing` cannot be imported, from the part of its path that can."""
    parent, _, name = missing.rpartition(".")
    if not parent:
        return f"there is no module {short_repr(missing)}; install its package, or put its folder on the Python path"
    package = importlib.import_module(parent)  # already imported by Python while it looked for `name`
    if not hasattr(package, "__path__"):
        return f"there is no module {missing!r}: {parent!r} is a module, not a package; write '{parent}:{name}'"
    known = [module.name for module in pkgutil.iter_modules(package.__path__)]
    return f"package {parent!r} has no module {name!r}.{did_you_mean(name, known)}"
