"""RLlib's helpers of tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from lightning_rl.rllib.utils.torch_utils import convert_to_non_torch_type

__all__ = ["check", "framework_iterator"]


def check(
    x: Any, y: Any, decimals: int = 5, atol: float | None = None, rtol: float | None = None, false: bool = False
) -> None:
    """Assert that two nested values are almost equal.

    Args:
        x, y: numbers, texts, arrays or tensors, in dicts and sequences.
        decimals: number of decimals that have to agree, unless there is a tolerance.
        atol, rtol: absolute and relative tolerance.
        false: assert that they differ somewhere.

    Raises:
        AssertionError: they differ, or with `false` they do not.
    """
    try:
        _check_equal(x, y, decimals, atol, rtol)
    except AssertionError:
        if not false:
            raise
        return
    assert not false, f"{x!r} is the same as {y!r}"


def _check_equal(x: Any, y: Any, decimals: int, atol: float | None, rtol: float | None) -> None:
    x, y = convert_to_non_torch_type(x), convert_to_non_torch_type(y)
    if isinstance(x, Mapping) and isinstance(y, Mapping):
        assert x.keys() == y.keys(), f"{list(x)} has other keys than {list(y)}"
        for name in x:
            _check_equal(x[name], y[name], decimals, atol, rtol)
    elif isinstance(x, list | tuple) and isinstance(y, list | tuple):
        assert len(x) == len(y), f"{len(x)} items, but {len(y)}"
        for left, right in zip(x, y, strict=True):
            _check_equal(left, right, decimals, atol, rtol)
    elif x is None or isinstance(x, str | bool | np.bool_):
        assert x == y, f"{x!r} is not {y!r}"
    elif atol is None and rtol is None:
        np.testing.assert_almost_equal(np.asarray(x), np.asarray(y), decimals)
    else:
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), atol=atol or 0.0, rtol=1e-7 if rtol is None else rtol)


def framework_iterator(
    config: Any = None,
    frameworks: str | Sequence[str] = ("tf2", "tf", "tfe", "torch"),
    session: bool = False,
    **keywords: Any,
) -> Iterator[Any]:
    """Go once through the body of a loop, with `config["framework"]` "torch"; never without it among the frameworks.

    Args:
        config: RLlib's keys, or an `AlgorithmConfig`.
        frameworks: the names of frameworks, one or several.
        session: yield the pair ("torch", `None`).
        keywords: not read: they are TensorFlow's.
    """
    if "torch" in ([frameworks] if isinstance(frameworks, str) else frameworks):
        if isinstance(config, dict):
            config["framework"] = "torch"
        elif config is not None:
            config.framework("torch")
        yield ("torch", None) if session else "torch"
