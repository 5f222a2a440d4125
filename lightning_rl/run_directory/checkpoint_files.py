"""Reads checkpoint files without running any code in them, and checks them for damage.

Every checkpoint states the version of the package that wrote it, and the version of its format (`SCHEMA`).
"""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch

from lightning_rl.errors import (
    CheckpointError,
    ConfigError,
    has_import_path,
    import_path,
    object_at,
    short_repr,
)
from lightning_rl.run_directory.config_file import CONFIG_FILE
from lightning_rl.run_directory.regular_files import is_regular
from lightning_rl.schema.trust import NotSaved, RegisteredName, check_bounded, names_code
from lightning_rl.version import __version__

__all__ = [
    "ARRAY",
    "SCHEMA",
    "check_version",
    "check_whole",
    "counters_in",
    "foreign",
    "from_plain",
    "newest_checkpoint",
    "not_saved",
    "read_checkpoint_file",
    "registered_name",
    "to_plain",
    "version_entry",
]

SCHEMA = 2
"""Version of the checkpoint format that this package writes and reads."""
WRITTEN_BY = "lightning_rl"  # key of the entry with the writer's version


def counters_in(path: str | os.PathLike[str]) -> dict[str, int]:
    """The counters env_steps, iterations and gradient_steps of a checkpoint file; reads no tensor.

    Raises:
        CheckpointError: the file is missing, damaged or no checkpoint; names file, reason and next step.
    """
    checkpoint = read_checkpoint_file(path, checksums=False)
    counters = checkpoint.get("counters") if isinstance(checkpoint, dict) else None
    if not isinstance(counters, dict) or not isinstance(counters.get("env_steps"), int):
        raise foreign(path)
    return counters


def foreign(path: Any) -> CheckpointError:
    """The error for a file that another program wrote."""
    return CheckpointError(
        f"checkpoint {path} was not written by lightning_rl: it holds no policy; use RUN_DIR/checkpoints/*.ckpt"
    )


def newest_checkpoint(directory: Path) -> tuple[Path, int] | None:
    """The readable checkpoint with the most env steps in a directory, with its env steps; last.ckpt if several tie."""
    found = []
    for path in directory.glob("*.ckpt"):
        if not is_regular(path, directory.parent):
            continue
        try:
            found.append((counters_in(path)["env_steps"], path.name == "last.ckpt", path))
        except CheckpointError:  # a damaged file is skipped
            continue
    return (max(found)[2], max(found)[0]) if found else None


def read_checkpoint_file(path: str | os.PathLike[str], *, checksums: bool = True) -> Any:
    """The content of a checkpoint file, with tensors on the CPU.

    Tensors are mapped from the file and read on first access, so a replay buffer is not in memory twice. Writing to a
    tensor does not change the file. As long as one tensor is in use, the whole file stays on the disk.

    Args:
        path: the file.
        checksums: whether to compare checksums, which reads all of the file.

    Raises:
        CheckpointError: the file is missing, damaged or no checkpoint; names file, reason and next step.
    """
    path = Path(path)
    if not _is_file(path):
        if os.path.lexists(path) and not path.is_dir():
            raise CheckpointError(
                f"checkpoint {path} is not a regular file, or is behind a link, which is not followed in a run "
                "directory: put the file itself there"
            )
        what = "is a directory" if path.is_dir() else "does not exist"
        raise CheckpointError(f"checkpoint {path} {what}: pass a file such as RUN_DIR/checkpoints/last.ckpt")
    try:
        check_whole(path, checksums=checksums)
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        check_bounded(content)
        if isinstance(content, dict):
            content |= {name: from_plain(content[name]) for name in ("config", "policy") if name in content}
        return content
    except CheckpointError:
        raise
    except Exception as error:  # the unpickler raises many kinds of errors for a damaged file, such as an IndexError
        if named := re.search(r"GLOBAL ([\w.]+)", str(error)):
            raise CheckpointError(
                f"checkpoint {path} names code ({named[1]}), and only tensors and plain data are read from a file"
            ) from error
        reason = (str(error).splitlines() or [""])[0]
        raise CheckpointError(
            f"checkpoint {path} cannot be read ({type(error).__name__}: {reason}): it is damaged or not a checkpoint"
        ) from error


def _is_file(path: Path) -> bool:
    """Whether a file can be read: in a run directory a regular one behind no link, elsewhere also by a user's link.

    Raises:
        CheckpointError: the system takes no such path.
    """
    run_dir = path.absolute().parent.parent
    try:
        in_run = path.absolute().parent.name == "checkpoints" and (run_dir / CONFIG_FILE).is_file()
        return is_regular(path.absolute(), run_dir) if in_run else path.is_file()
    except OSError as error:  # such as a name that is too long
        raise CheckpointError(f"checkpoint {short_repr(str(path))} cannot be read: {error.strerror}") from error


def check_whole(path: Path, *, checksums: bool = True) -> None:
    """Compare the file's checksums with its content: `torch.load` does not, and would load flipped bits as weights.

    Args:
        path: the path of the file.
        checksums: whether to read all of the file, or only its table of contents.

    Raises:
        CheckpointError: they differ, or the archive has entries that torch does not write.
        zipfile.BadZipFile: the file is not a checkpoint, or is incomplete.
    """
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        for entry in entries:
            name = PurePosixPath(entry.filename)
            # Torch compresses nothing: an entry that is compressed could unfold to any size.
            if entry.compress_type != zipfile.ZIP_STORED or name.is_absolute() or ".." in name.parts:
                raise CheckpointError(f"checkpoint {path} holds {entry.filename!r}, which torch did not write")
        # Torch writes no attributes; one that says "directory" would make it read that tensor from unset memory.
        damaged = next((entry.filename for entry in entries if entry.external_attr), None)
        damaged = damaged or (archive.testzip() if checksums else None)
    if damaged is not None:
        raise CheckpointError(f"checkpoint {path} is damaged (wrong checksum of {damaged})")


# -- plain data ------------------------------------------------------------------------------------------------------
# The only keys of mappings that stand for what plain data has no form for:
ARRAY = "numpy array"  # a NumPy array, as a tensor
NOT_SAVED = "not saved"  # the description of a function or object
REGISTERED = "registered name"  # a name given to `register_env`
SCALARS = (type(None), bool, int, float, complex, str, bytes)


def to_plain(value: Any, place: str = "") -> Any:
    """A config, or a part of one, as data that `torch.load(weights_only=True)` reads; `from_plain` is the inverse.

    Numbers, text, containers, tensors, and NumPy's numbers and arrays of numbers are kept. A class or function becomes
    its import path at a key where a file may name code. Anything else is replaced by its description (`not_saved`).

    Args:
        value: the value of the config.
        place: its dotted key; "" for a config itself.
    """
    if isinstance(value, np.generic) and value.dtype.kind in "biufcU":
        value = value.item()
    if type(value) in SCALARS:
        return value
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().clone()
    if type(value) is np.ndarray and value.dtype.kind in "biufc" and value.dtype.itemsize <= 16:
        return {ARRAY: torch.from_numpy(np.array(value, value.dtype.newbyteorder("=")))}
    prefix = f"{place}." if place else ""
    if isinstance(value, Mapping):
        plain = {to_plain(key): to_plain(child, f"{prefix}{key}") for key, child in value.items() if _is_scalar(key)}
        return plain if len(plain) == len(value) else _note(value)
    if isinstance(value, list) or type(value) is tuple:
        children = [to_plain(child, f"{prefix}{index}") for index, child in enumerate(value)]
        return tuple(children) if isinstance(value, tuple) else children
    if type(value) is set and all(map(_is_scalar, value)):
        return {to_plain(child) for child in value}
    return (_findable_path(value) if names_code(place) else None) or _note(value)


def from_plain(value: Any) -> Any:
    """What `to_plain` got; a `NotSaved` in the place of what it could not keep."""
    if isinstance(value, Mapping):
        kind, content = next(iter(value.items())) if len(value) == 1 else (None, None)
        if kind == ARRAY and isinstance(content, torch.Tensor):
            return content.numpy().copy()
        if kind in (NOT_SAVED, REGISTERED) and isinstance(content, str):
            return NotSaved(content) if kind == NOT_SAVED else RegisteredName(content)
        return {key: from_plain(child) for key, child in value.items()}
    return type(value)(map(from_plain, value)) if isinstance(value, list | tuple) else value


def registered_name(name: str) -> dict[str, str]:
    """The plain form of a name given to `register_env`, which another process may not know."""
    return {REGISTERED: name}


def not_saved(plain: Any, place: str = "") -> dict[str, str]:
    """Dotted key → description of what `to_plain` could not keep."""
    found: dict[str, str] = {}
    prefix = f"{place}." if place else ""
    if isinstance(plain, Mapping):
        if plain.keys() == {NOT_SAVED}:
            return {place: plain[NOT_SAVED]}
        for key, child in plain.items():
            found |= not_saved(child, f"{prefix}{key}")
    elif isinstance(plain, list | tuple):
        for index, child in enumerate(plain):
            found |= not_saved(child, f"{prefix}{index}")
    return found


def _is_scalar(value: Any) -> bool:
    return type(value) in SCALARS or (isinstance(value, np.generic) and type(value.item()) in SCALARS)


def _findable_path(value: Any) -> str | None:
    """The import path of a class or function if another process finds it there."""
    if not has_import_path(value):
        return None
    try:
        path = import_path(value)
        return path if object_at(path) == value else None
    except ConfigError:
        return None


def _note(value: Any) -> dict[str, str]:
    """The description that stands for a value without a plain form."""
    owner = value if hasattr(value, "__qualname__") else type(value)
    named = f"{getattr(owner, '__module__', None) or 'builtins'}.{owner.__qualname__}"
    kind = "the class" if isinstance(value, type) else "the function" if owner is value else "an object of"
    return {NOT_SAVED: f"{kind} {named}"}


# -- versions --------------------------------------------------------------------------------------------------------
def version_entry() -> dict[str, Any]:
    """The entry of a checkpoint with the package version and format version of its writer."""
    return {WRITTEN_BY: {"version": __version__, "schema": SCHEMA}}


def check_version(checkpoint: Mapping[str, Any], path: Any) -> None:
    """Refuse a checkpoint of another format than this version's.

    Args:
        checkpoint: content of the file.
        path: the path of the file, for messages.

    Raises:
        CheckpointError: it was written in a format that cannot be read here; one without an entry is of today's.
    """
    writer = {**version_entry(), **checkpoint}[WRITTEN_BY]
    schema, version = (writer.get(name) if isinstance(writer, Mapping) else writer for name in ("schema", "version"))
    if schema != SCHEMA:
        raise CheckpointError(
            f"checkpoint {path} was written by lightning_rl {version!s:.40} with schema {schema!r:.40}; this is "
            f"lightning_rl {__version__}, which reads schema {SCHEMA}: load it with the version that wrote it"
        )
