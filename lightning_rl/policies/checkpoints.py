"""A policy's entries of a checkpoint, as plain data that `weights_only=True` loads, and loading a policy from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lightning_rl.distributed import sum_over_ranks
from lightning_rl.errors import (
    CheckpointError,
    ConfigError,
    NonFiniteError,
    UntrustedError,
    count_in_file,
    did_you_mean,
    import_object,
    import_path,
)
from lightning_rl.learning.progress import COUNTERS
from lightning_rl.run_directory.checkpoint_files import (
    ARRAY,
    check_version,
    foreign,
    from_plain,
    not_saved,
    read_checkpoint_file,
    to_plain,
)
from lightning_rl.run_directory.signature import is_own_checkpoint
from lightning_rl.schema.signatures import keywords_of
from lightning_rl.schema.trust import FileTrust, trust_names
from lightning_rl.spaces import space_difference, space_from_json, space_to_json

__all__ = [
    "check_finite_weights",
    "check_fits",
    "counters",
    "differing_weights",
    "load_as",
    "load_counters_and_weights",
    "load_policy",
    "parts_of_checkpoint",
    "plain_weights",
    "policy_spec",
    "read_checkpoint",
    "repeat_changes_of",
    "set_counters",
]


def counters(policy: Any) -> dict[str, int]:
    """The policy's step counters by name."""
    return {name: int(getattr(policy, name)) for name in COUNTERS}


def set_counters(policy: Any, values: Mapping[str, int]) -> None:
    """Continue counting from `values`.

    Raises:
        CheckpointError: a counter is not a whole number; names it.
    """
    for name in COUNTERS:
        setattr(policy, name, count_in_file(f"counters.{name}", values[name]))


def policy_spec(policy: Any) -> dict[str, Any]:
    """Class, constructor keywords and spaces of a policy as plain data.

    Raises:
        CheckpointError: a keyword has no plain form (a lambda, an object); the message suggests an import path.
    """
    (observation_space, action_space), keywords = policy.constructor_arguments()
    return {
        "class": import_path(type(policy)),
        "kwargs": _plain_keywords(keywords),
        "observation_space": space_to_json(observation_space),
        "action_space": space_to_json(action_space),
    }


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """The contents of a checkpoint file, in the form of this version; no code in it is ever run.

    Raises:
        CheckpointError: the file is missing, damaged, not a checkpoint of this package, or of a newer version of it.
    """
    checkpoint = read_checkpoint_file(path)
    if not isinstance(checkpoint, dict) or not {"policy", "counters", "state_dict"} <= checkpoint.keys():
        raise foreign(path)
    check_version(checkpoint, path)
    spec = checkpoint["policy"]
    kinds = {"class": str, "kwargs": Mapping, "observation_space": Mapping, "action_space": Mapping}
    for key, kind in kinds.items():
        if not isinstance(spec, Mapping) or not isinstance(spec.get(key), kind):
            raise CheckpointError(
                f"checkpoint {path} was changed: its policy has no {key!r}, or one of another type; use another one"
            )
    return checkpoint


def load_policy(
    path: str | Path,
    policy_class: type[Any] | None = None,
    trust: str | Sequence[str] = (),
    policy_id: str | None = None,
) -> Any:
    """Build the policy that a checkpoint holds and give it its weights.

    Args:
        path: the file.
        policy_class: the class; `None` imports the one that the file names.
        trust: packages that the file may name.
        policy_id: which one of several policies; `None`: what the file holds, which may be all of them in one.
    """
    checkpoint = read_checkpoint(path)
    own = is_own_checkpoint(checkpoint)
    if policy_id is not None:
        checkpoint = checkpoint_of_part(path, checkpoint, policy_id)
    spec = checkpoint["policy"]
    trusted = [trust] if isinstance(trust, str) else list(trust)
    if policy_class is None:
        names = check_names(path, {**spec["kwargs"], "class": spec["class"]}, trusted, own)
    else:
        names = check_names(path, spec["kwargs"], [*trusted, policy_class.__module__], own)
    with as_checkpoint_error(path), names.restrict_imports():
        return build_from_checkpoint(import_object(spec["class"]) if policy_class is None else policy_class, checkpoint)


def check_names(path: str | Path, named: Mapping[str, Any], trust: Sequence[str], own: bool) -> FileTrust:
    """Check the code that a policy's entry in a file names; returns the names that loading may import.

    Args:
        path: the file.
        named: keywords of the policy, and its class.
        trust: packages that the file may name.
        own: whether this user's run wrote the file (`is_own_checkpoint`).

    Raises:
        CheckpointError: the file names code that is not trusted or does not exist, or a policy without a class.
    """
    parts = named.get("policies")
    for policy_id, entry in parts.items() if isinstance(parts, Mapping) else ():
        _check_entry(path, policy_id, entry)
    names = FileTrust(f"checkpoint {path}", trust, UntrustedError, own=own)
    try:
        names.check({"policy": named})
    except CheckpointError as error:
        if ": policy.class=" not in str(error) or not isinstance(error.__cause__, ConfigError):
            raise
        raise CheckpointError(
            f"{error} Make it at the top level of that module again, or pass it: Policy.load(path, policy_class=…)"
        ) from error
    return names


def _check_entry(path: Any, policy_id: str, entry: Any) -> None:
    """Refuse an entry of one of several policies in another form than is written, which `FileTrust` would not check."""
    if not isinstance(entry, Mapping) or not isinstance(entry.get("_target_"), str) or "checkpoint" in entry:
        raise CheckpointError(f"checkpoint {path} was changed: policies.{policy_id} names no class; use another one")


def load_as(
    policy_class: type[Any],
    path: str | Path,
    changes: Mapping[str, Any],
    *,
    strict: bool | None = None,
    trust: str | Sequence[str] = (),
) -> Any:
    """Build a policy of this class from a checkpoint; nothing is imported to find the class.

    Args:
        policy_class: the class; the file must hold its name, and may hold another module.
        path: the file.
        changes: keywords that replace those in the file.
        strict: whether the weights in the file must be exactly those of the policy; `None`: they must.
        trust: packages that the file may name.

    Raises:
        CheckpointError: the file is missing, damaged or foreign, or holds a policy of another class or other weights.
        ConfigError: the class does not take a keyword.
    """
    checkpoint = read_checkpoint(path)
    held = str(checkpoint["policy"]["class"])
    if held.rpartition(":")[2] != import_path(policy_class).rpartition(":")[2]:
        raise CheckpointError(
            f"checkpoint {path} holds a {held}, not a {import_path(policy_class)}: load it by that class, "
            "or with Policy.load(path)"
        )
    known = keywords_of(policy_class)
    for name in changes:
        if name not in known:
            raise ConfigError(f"{policy_class.__name__} takes no keyword {name!r}.{did_you_mean(name, known)}")
    trust_names(changes)
    trusted = [trust] if isinstance(trust, str) else list(trust)
    kwargs = {**checkpoint["policy"]["kwargs"], **changes}
    names = check_names(path, kwargs, [*trusted, policy_class.__module__], is_own_checkpoint(checkpoint))
    with nullcontext() if changes else as_checkpoint_error(path), names.restrict_imports():
        return build_from_checkpoint(policy_class, checkpoint, changes, strict=strict is not False)


def build_from_checkpoint(
    policy_class: type[Any],
    checkpoint: Mapping[str, Any],
    changes: Mapping[str, Any] | None = None,
    *,
    strict: bool = True,
) -> Any:
    """A policy with the checkpoint's spaces, keywords (updated by `changes`), weights and counters, ready to act."""
    spec = checkpoint["policy"]
    spaces = (space_from_json(spec[name]) for name in ("observation_space", "action_space"))
    policy = policy_class(*spaces, **{**spec["kwargs"], **(changes or {})})
    if strict:
        check_weights(policy, checkpoint)
    policy.load_state_dict(checkpoint["state_dict"], strict=strict)
    load_counters_and_weights(policy, checkpoint)
    return policy.eval()


@contextmanager
def as_checkpoint_error(path: Any) -> Iterator[None]:
    """Context that turns errors caused by a file's contents into a `CheckpointError`.

    Raises:
        CheckpointError: names the file and the original error.
    """
    try:
        yield
    except CheckpointError as error:
        if str(path) in str(error):
            raise
        raise CheckpointError(f"checkpoint {path}: {error}") from error
    except (ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise CheckpointError(
            f"checkpoint {path} does not make a policy ({type(error).__name__}: {reason}): it was changed, or written "
            "by another version of its policy's class"
        ) from error


def load_counters_and_weights(policy: Any, checkpoint: Mapping[str, Any]) -> None:
    """Set a policy's counters and, if it is written from scratch, its weights; for several policies, those of each.

    Raises:
        CheckpointError: the entry of one of several policies is missing.
    """
    set_counters(policy, checkpoint["counters"])
    if "weights" in checkpoint:
        policy.set_weights(from_plain(checkpoint["weights"]))
    for policy_id, part in policy.policies.items():
        if part is not policy:
            load_counters_and_weights(part, _entry_of_part(checkpoint, policy_id))


# -- several policies -------------------------------------------------------------------------------------------------
def parts_of_checkpoint(policies: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The entry "policies" of a checkpoint: spaces, counters and own weights of each of several policies, by its id.

    Their classes and keywords are in the entry "policy", their tensors in "state_dict".
    """
    parts: dict[str, dict[str, Any]] = {}
    for policy_id, policy in policies.items():
        part = parts[policy_id] = {
            "observation_space": space_to_json(policy.observation_space),
            "action_space": space_to_json(policy.action_space),
            "counters": counters(policy),
        }
        if not policy.has_model:
            part["weights"] = plain_weights(f"policies.{policy_id}.weights", policy.get_weights())
    return parts


def checkpoint_of_part(path: Any, checkpoint: Mapping[str, Any], policy_id: str) -> dict[str, Any]:
    """A checkpoint of one of several policies, made of the entries for it.

    Raises:
        CheckpointError: the file holds one policy, or none with this id.
    """
    entries = checkpoint["policy"]["kwargs"].get("policies")
    if not isinstance(entries, Mapping):
        raise CheckpointError(
            f"checkpoint {path} holds one policy, {checkpoint['policy']['class']}, without ids: leave out "
            f"policy_id={policy_id!r}"
        )
    if policy_id not in entries:
        raise CheckpointError(
            f"checkpoint {path} holds no policy {policy_id!r}.{did_you_mean(policy_id, entries)} "
            f"Policies: {', '.join(map(repr, entries))}"
        )
    _check_entry(path, policy_id, entries[policy_id])
    entry, part = entries[policy_id], _entry_of_part(checkpoint, policy_id)
    kwargs = {name: value for name, value in entry.items() if name not in ("_target_", "spaces_of")}
    spaces = {name: part[name] for name in ("observation_space", "action_space")}
    prefix = f"policies.{policy_id}."
    tensors = checkpoint["state_dict"].items()
    return {
        "policy": {"class": entry["_target_"], "kwargs": kwargs, **spaces},
        "counters": part["counters"],
        "state_dict": {name.removeprefix(prefix): value for name, value in tensors if name.startswith(prefix)},
        **({"weights": part["weights"]} if "weights" in part else {}),
    }


def _entry_of_part(checkpoint: Mapping[str, Any], policy_id: str) -> Mapping[str, Any]:
    parts = checkpoint.get("policies")
    part = parts.get(policy_id) if isinstance(parts, Mapping) else None
    expected = {"observation_space", "action_space", "counters"}
    if not isinstance(part, Mapping) or not expected <= part.keys():
        raise CheckpointError(
            f"the checkpoint lacks the entry policies.{policy_id}, or a part of it: it was changed, use another one"
        )
    return part


def repeat_changes_of(checkpoint: Mapping[str, Any], policy: Any) -> None:
    """Change a policy as the run did before it wrote a checkpoint: its policies, the mapping, the trained policies.

    Where the run changed none of these after its start, they stay those of `policy`.

    Raises:
        CheckpointError: the file names code that is not trusted.
    """
    spec = checkpoint.get("policy")
    kwargs = spec.get("kwargs") if isinstance(spec, Mapping) else None
    kwargs = kwargs if isinstance(kwargs, Mapping) else {}
    entries = kwargs.get("policies")
    if not isinstance(entries, Mapping):
        return  # `check_fits` says what is wrong
    added = {policy_id: entry for policy_id, entry in entries.items() if policy_id not in policy.policies}
    removed = set(policy.policies) - entries.keys()
    in_run = bool(checkpoint.get("policies_changed"))
    if (removed and not in_run) or not (added or in_run):
        return
    named = {"policies": added, "policy_mapping": kwargs.get("policy_mapping")}
    names = check_names("(the one to load)", named, [], is_own_checkpoint(checkpoint))
    with as_checkpoint_error("(the one to load)"), names.restrict_imports():
        policy.add_policies(added, kwargs.get("policy_mapping"), kwargs.get("policies_to_train"))
    for policy_id in removed:
        policy.remove_policy(policy_id)


def check_finite_weights(policy: Any, checkpoint: Mapping[str, Any]) -> None:
    """Refuse to save weights that are NaN or infinite on any rank; copies from the device once.

    Args:
        policy: the owner of the parameters to check.
        checkpoint: contents of the file, with the weights of policies written from scratch.

    Raises:
        NonFiniteError: names a parameter.
    """
    parts = {name: part.get("weights") for name, part in checkpoint.get("policies", {}).items()}
    tensors = [*policy.named_parameters(), *_tensors("weights", checkpoint.get("weights", parts))]
    bad = _not_finite(tensors)
    if sum_over_ranks(len(bad)):
        what = f"{bad[0]} and {len(bad) - 1} more of {len(tensors)} tensors" if bad else "weights of another rank"
        raise NonFiniteError(
            f"{what} hold NaN or infinity after gradient step {policy.gradient_steps}: no checkpoint of them is "
            "written, and the one before stays; lower policy.lr, or find what changes weights outside the optimizer"
        )


def _not_finite(tensors: Sequence[tuple[str, torch.Tensor]]) -> list[str]:
    """Names of the tensors that hold NaN or infinity; copies from the device once if there is none."""
    finite = [tensor.detach().isfinite().all() for _, tensor in tensors]
    if not finite or bool(_stack_on_device(finite).all()):
        return []
    return [name for (name, _), good in zip(tensors, finite, strict=True) if not good]


def _stack_on_device(flags: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack([flag.to(flags[0].device) for flag in flags])


def _tensors(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """All tensors in nested containers, with the path of each."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, Mapping):
        for key, child in value.items():
            yield from _tensors(f"{name}[{key!r}]", child)
    elif isinstance(value, list | tuple):
        for index, child in enumerate(value):
            yield from _tensors(f"{name}[{index}]", child)


def check_fits(policy: Any, checkpoint: Mapping[str, Any]) -> None:
    """Refuse a checkpoint of another policy, naming what differs.

    Raises:
        CheckpointError: no policy inside, another class, other spaces, or other weights.
    """
    if "policy" not in checkpoint or "counters" not in checkpoint:
        raise CheckpointError(
            "the checkpoint was not written by lightning_rl: it holds no policy; use RUN_DIR/checkpoints/*.ckpt"
        )
    spec = checkpoint["policy"]
    if spec["class"] != import_path(type(policy)):
        raise CheckpointError(
            f"the checkpoint holds a {spec['class']}; this run trains a {import_path(type(policy))}: "
            "resume it with its own config"
        )
    for name in ("observation_space", "action_space"):
        difference = space_difference(space_from_json(spec[name]), getattr(policy, name))
        if difference:
            raise CheckpointError(
                f"the checkpoint's {name} is not this environment's: {difference}; "
                "use the environment it was trained on"
            )
    check_weights(policy, checkpoint)


def check_weights(policy: Any, checkpoint: Mapping[str, Any]) -> None:
    """Refuse weights of other names or shapes, naming what differs, and such as are NaN or infinite.

    Raises:
        CheckpointError: the weights are those of another model, or no policy could act with them.
    """
    theirs = checkpoint["state_dict"]
    if odd := [*differing_weights(theirs, policy.state_dict()).values()]:
        raise CheckpointError(
            f"the checkpoint's weights do not fit this model (file against model): {'; '.join(odd[:5])}: "
            "use its own model config"
        )
    bad = _not_finite([(name, theirs[name]) for name, _ in policy.named_parameters()])
    if bad:
        more = f" and {len(bad) - 1} more of its weights hold" if bad[1:] else " holds"
        raise CheckpointError(f"{bad[0]}{more} NaN or infinity, which is never saved: the file was changed")


def differing_weights(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, str]:
    """Name → name and both shapes as text, of each tensor that one side lacks, or that differs in its shape."""
    shapes = [
        {name: str([*value.shape]) if isinstance(value, torch.Tensor) else "no tensor" for name, value in side.items()}
        for side in (theirs, ours)
    ]
    pairs = {name: [side.get(name, "absent") for side in shapes] for name in {**ours, **theirs}}
    return {name: f"{name} {held} against {own}" for name, (held, own) in pairs.items() if held != own}


def plain_weights(name: str, value: Any) -> Any:
    """Weights in a policy's own form as plain data; `from_plain` is the inverse.

    Raises:
        CheckpointError: a value is neither a number, text, tensor, numeric array nor a container of these.
    """
    if value is None or isinstance(value, bool | int | float | str | torch.Tensor):
        return value.detach().cpu().clone() if isinstance(value, torch.Tensor) else value
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "fiub":
        return {ARRAY: torch.from_numpy(np.array(value))} if isinstance(value, np.ndarray) else value.item()
    if isinstance(value, Mapping) and all(map(_plain_key, value)):
        return {key: plain_weights(f"{name}[{key!r}]", child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        entries = [plain_weights(f"{name}[{index}]", child) for index, child in enumerate(value)]
        return tuple(entries) if isinstance(value, tuple) else entries
    raise CheckpointError(
        f"{name}={value!r} cannot be written into a checkpoint: get_weights() shall return numbers, text, arrays and "
        "tensors in dicts (keys: text, numbers, tuples of these), lists and tuples"
    )


def _plain_key(key: Any) -> bool:
    return isinstance(key, str | int | float) or (isinstance(key, tuple) and all(map(_plain_key, key)))


def _plain_keywords(keywords: Mapping[str, Any]) -> dict[str, Any]:
    plain = to_plain(keywords, "policy")
    for key, what in not_saved(plain, "policy").items():
        raise CheckpointError(
            f"{key} is {what}, which cannot be written into a checkpoint: give it as an import path "
            "('my_pkg.module:Name')"
        )
    return plain
