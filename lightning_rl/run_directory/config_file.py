"""Reads and writes config.yaml, the resolved config of a run, its signature, and config_history.yaml, its changes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from lightning_rl.errors import ConfigError, SaveError
from lightning_rl.run_directory.atomic import write_atomically
from lightning_rl.run_directory.process_identity import now
from lightning_rl.run_directory.regular_files import read_text
from lightning_rl.run_directory.signature import is_signed, sign
from lightning_rl.schema.trust import FileTrust, check_bounded

__all__ = [
    "CONFIG_FILE",
    "HISTORY_FILE",
    "SIGNATURE_FILE",
    "is_own_config",
    "is_own_run",
    "leaves",
    "read_config",
    "read_history",
    "read_overrides",
    "relocate",
    "relocate_to_checkpoint",
    "trust_in_config",
    "write_config",
]

CONFIG_FILE = "config.yaml"
HISTORY_FILE = "config_history.yaml"
SIGNATURE_FILE = "config.signature"

HEAD = "# The resolved configuration of this run; it ends with a line of three dots.\n"
SECTIONS = (
    "seed",
    "total_env_steps",
    "run_dir",
    "stop",
    "env",
    "policy",
    "workers",
    "data",
    "evaluation",
    "checkpoint",
)

ABSENT = "(absent)"
SIGNATURE_BYTES = 64
ANYWHERE = "\0"  # stands for the run directory in what is signed, so that a run may be moved; no path may hold it
MOST_BYTES = 2**20  # limit for config.yaml, which usually has 4 kB


class Loader(yaml.SafeLoader):
    """YAML loader without merge keys ("<<"), which could turn a few lines into billions of entries."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Merge nothing, so that such a key is refused as unknown."""


def read_config(run_dir: Path) -> dict[str, Any]:
    """Read the config in a run directory, which may have been renamed since it was written.

    The result is plain data; names in it have not been checked (`FileTrust`).

    Raises:
        ConfigError: there is no config, or it is damaged; names file and reason.
    """
    file = run_dir / CONFIG_FILE
    if not os.path.lexists(file):
        raise ConfigError(f"{run_dir} holds no run (no config.yaml): give a directory that `lightning-rl train` wrote")
    remedy = "take it from a copy of the run; its checkpoints hold the policy, and are not touched"
    try:
        text = read_text(file, most=MOST_BYTES)
        config = yaml.load(text, Loader)  # a safe loader
        check_bounded(config)
    except (OSError, RecursionError, ValueError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"{file} is damaged ({reason}): {remedy}") from error
    missing = [name for name in SECTIONS if name not in config] if isinstance(config, dict) else ["run_dir"]
    if missing or not isinstance(config["run_dir"], str):
        raise ConfigError(f"{file} is damaged (it has no {missing[0] if missing else 'run_dir'}): {remedy}")
    if text.startswith(HEAD) and not text.endswith("\n...\n"):
        raise ConfigError(f"{file} is damaged (its end is missing): {remedy}")
    return relocate(config, run_dir)


def trust_in_config(config: Mapping[str, Any], run_dir: Path, trust: str | Sequence[str]) -> FileTrust:
    """What config.yaml may name and where it may write.

    Args:
        config: the result of `read_config`.
        run_dir: the directory of the run.
        trust: import prefixes that the user trusts.
    """
    return FileTrust(run_dir / CONFIG_FILE, trust, write_to=run_dir, own=is_own_config(config, run_dir))


def is_own_run(run_dir: Path) -> bool:
    """Whether a run of this user wrote the config.yaml in a directory, which may have none."""
    return (run_dir / CONFIG_FILE).is_file() and is_own_config(read_config(run_dir), run_dir)


def is_own_config(config: Mapping[str, Any], run_dir: Path) -> bool:
    """Whether a run of this user wrote this config, as `read_config` gives it, to the run directory."""
    file = run_dir / SIGNATURE_FILE
    if not file.is_file():
        return False
    with file.open("rb") as opened:
        signature = opened.read(SIGNATURE_BYTES)
    return is_signed(_signed_form(config), signature.decode(errors="replace"))


def _signed_form(config: Mapping[str, Any]) -> dict[str, Any]:
    return {CONFIG_FILE: relocate(config, Path(ANYWHERE))}


def relocate(config: Mapping[str, Any], run_dir: Path) -> dict[str, Any]:
    """The config with its run directory, and every path inside it, replaced by the current directory."""
    before = config["run_dir"]

    def replace_paths(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: replace_paths(child) for key, child in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(map(replace_paths, value))
        if isinstance(value, str) and (value == before or value.startswith(f"{before}/")):
            return f"{run_dir}{value[len(before) :]}"
        return value

    return replace_paths(config)


def relocate_to_checkpoint(config: Mapping[str, Any], checkpoint: Path) -> dict[str, Any]:
    """The config in a checkpoint with the run directory that its run may write to, whatever the file says.

    It is the one that contains the file; for a file outside of a run directory, one next to it, with its name.
    """
    place = checkpoint.absolute().parent
    if place.name == "checkpoints" and (place.parent / CONFIG_FILE).is_file():
        config = relocate(config, place.parent)  # a run may have been moved
    if place.resolve() != Path(config["run_dir"]).resolve() / "checkpoints":
        config = relocate(config, place / checkpoint.stem)
    return dict(config)


def write_config(config: Mapping[str, Any], run_dir: Path, env_steps: int = 0) -> None:
    """Write the resolved config to the run directory; a file with the same content is left unchanged.

    Differences from an existing file are first written to config_history.yaml. The config is signed, so that the user
    need not trust it again; in the place of an existing one only if that one was signed as well.

    Args:
        config: plain containers.
        run_dir: the directory of the run.
        env_steps: env steps of the checkpoint that the run continues from.

    Raises:
        ConfigError: it contains objects, which cannot be read back from a file.
        SaveError: the files could not be written; existing ones are unchanged.
    """
    try:
        text = yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True, explicit_end=True)
    except yaml.YAMLError as error:
        raise ConfigError(f"the config holds what is not plain data ({error}): give import paths") from error
    file = run_dir / CONFIG_FILE
    own = not file.exists() or is_own_run(run_dir)
    try:
        if os.path.lexists(file):
            before = yaml.safe_load(read_text(file))
            if before == yaml.safe_load(text):
                return
            _record(run_dir / HISTORY_FILE, changes(before, config, run_dir), env_steps)
        write_atomically(file, f"{HEAD}{text}".encode())
        if own and (signature := sign(_signed_form(config))):
            write_atomically(run_dir / SIGNATURE_FILE, signature.encode())
    except OSError as error:
        raise SaveError(
            f"{file} could not be written ({error.strerror or error}): it is as it was, and so are the checkpoints; "
            "free some space there and try again"
        ) from error


def changes(before: Mapping[str, Any], after: Mapping[str, Any], run_dir: Path) -> dict[str, list[Any]]:
    """Dotted key → [before, after] for the differences between two configs, except for paths inside the run directory.

    If only one config has a key, the other value is "(absent)".
    """
    moved = {} if before["run_dir"] == after["run_dir"] else {"run_dir": [before["run_dir"], after["run_dir"]]}
    old, new = dict(leaves(relocate(before, run_dir))), dict(leaves(relocate(after, run_dir)))
    pairs = {key: [old.get(key, ABSENT), new.get(key, ABSENT)] for key in dict.fromkeys([*old, *new])}
    return moved | {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def read_overrides(directory: Path) -> dict[str, str]:
    """The overrides of a sweep's job, key → value as text; empty without a readable file."""
    file = directory / ".hydra" / "overrides.yaml"
    try:
        entries = yaml.safe_load(read_text(file, directory, most=MOST_BYTES))
    except (OSError, RecursionError, ValueError, yaml.YAMLError):
        return {}
    texts = [entry for entry in entries if isinstance(entry, str)] if isinstance(entries, list) else []
    pairs = (text.lstrip("+").replace("\\", "").partition("=") for text in texts)
    return {key: value for key, _, value in pairs}


def read_history(file: Path) -> list[dict[str, Any]]:
    """The entries of config_history.yaml, oldest first: at, env_steps, changes; empty if there is no such file.

    Raises:
        ConfigError: the file is damaged.
    """
    if not os.path.lexists(file):
        return []
    try:
        entries = yaml.load(read_text(file, most=MOST_BYTES), Loader)  # a safe loader
        check_bounded(entries)
        return [{**entry, "env_steps": int(entry["env_steps"]), "changes": dict(entry["changes"])} for entry in entries]
    except (LookupError, OSError, TypeError, ValueError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"{file} is damaged ({reason}): delete it, a run continues without it") from error


def _record(file: Path, changed: Mapping[str, list[Any]], env_steps: int) -> None:
    """Add an entry to the history by replacing the file, so that it is complete at any time."""
    written = read_text(file) if os.path.lexists(file) else ""
    entry = yaml.safe_dump(
        [{"at": now(), "env_steps": env_steps, "changes": dict(changed)}], sort_keys=False, allow_unicode=True
    )
    write_atomically(file, f"{written}{entry}".encode())


def leaves(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and values of nested mappings; an empty one is a value."""
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
