"""Signs the configs that this user's runs write, so that the user's own files may name the user's own code.

A signature is an HMAC under a key that is in the user's configuration directory and in no other place. It covers a
config as a whole, and where Python finds each package that the config names. So it holds for no other config, on no
other machine, and not where a module of the same name would be imported from another place.
"""

from __future__ import annotations

import hashlib
import hmac
import importlib.util
import json
import logging
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning_rl.schema.trust import packages_in

__all__ = ["is_own_checkpoint", "is_signed", "sign", "sign_checkpoint"]

log = logging.getLogger(__name__)

KEY_BYTES = 32


def sign(content: Mapping[str, Any]) -> str | None:
    """The signature of plain data; `None` if it has no text form, or there is no key and none can be written."""
    key = _key(make=True)
    return _signature(key, content) if key else None


def is_signed(content: Mapping[str, Any], signature: Any) -> bool:
    """Whether this user has signed just this content, and its packages are found where they were; imports nothing."""
    if not isinstance(signature, str) or not (key := _key(make=False)):
        return False
    expected = _signature(key, content)
    return expected is not None and hmac.compare_digest(expected.encode(), signature.encode())


def sign_checkpoint(checkpoint: dict[str, Any], policy: Mapping[str, Any]) -> None:
    """Add the signature of the entries of a checkpoint that name code: its config, and the policy's class and keywords.

    Args:
        checkpoint: contents of the file, with the entry "config".
        policy: what its entry "policy" will be.
    """
    if signature := sign({"config": checkpoint["config"], "policy": policy}):
        checkpoint["signature"] = signature


def is_own_checkpoint(checkpoint: Mapping[str, Any]) -> bool:
    """Whether a run or an `Algorithm` of this user has signed a checkpoint, and its config and policy are unchanged."""
    return is_signed({name: checkpoint.get(name) for name in ("config", "policy")}, checkpoint.get("signature"))


def _signature(key: bytes, content: Mapping[str, Any]) -> str | None:
    signed = {"content": content, "packages": {name: _place(name) for name in packages_in(content)}}
    try:
        text = json.dumps(signed, default=_tensor_as_text)
    except (AttributeError, RuntimeError, TypeError, ValueError):  # such as a date in a YAML file
        return None
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _place(package: str) -> Any:
    """Where Python finds a top-level package; `None` if it does not. Finding it imports nothing."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):  # ValueError: a module without a spec, as "__main__"
        return None
    if spec is None:
        return None
    return [os.path.realpath(place) for place in (spec.submodule_search_locations or [spec.origin or ""])]


def _tensor_as_text(value: Any) -> Any:
    array = value.numpy()  # a tensor; anything else has no such method
    return {"tensor": [str(array.dtype), list(array.shape), hashlib.sha256(array.tobytes()).hexdigest()]}


def _key_file() -> Path:
    """The file of the key: in $XDG_CONFIG_HOME, or in ~/.config."""
    configured = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    return (configured if configured.is_absolute() else Path("~/.config").expanduser()) / "lightning_rl" / "signing_key"


def _key(*, make: bool) -> bytes | None:
    """The user's key; `None` if there is none, or if others could have read or written it.

    Args:
        make: whether to make one where there is none.
    """
    try:
        file = _key_file()
        if make and not file.exists():
            _make_key(file)
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (OSError, RuntimeError):  # no file, a home that is read-only, or no home
        return None
    with open(descriptor, "rb") as opened:
        status = os.fstat(descriptor)
        key = opened.read(KEY_BYTES + 1) if stat.S_ISREG(status.st_mode) else b""
    if status.st_uid == os.getuid() and not status.st_mode & 0o077 and len(key) == KEY_BYTES:
        return key
    log.warning(
        f"{file} is not used, so your own runs need --trust where they name your code: expected a file of {KEY_BYTES} "
        "bytes that only you can read; delete it, and the next run makes a new one"
    )
    return None


def _make_key(file: Path) -> None:
    """Write a new key, unless another process is faster.

    Raises:
        OSError: it cannot be written.
    """
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    staging = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    with open(os.open(staging, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
        opened.write(secrets.token_bytes(KEY_BYTES))
    try:
        os.link(staging, file)  # complete at once, and never in the place of another key
    except FileExistsError:
        pass
    finally:
        staging.unlink()
