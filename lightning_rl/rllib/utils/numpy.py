"""RLlib's functions of arrays, for tests that compute by hand what a policy or a loss does."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from lightning_rl.rllib.utils.torch_utils import convert_to_non_torch_type
from lightning_rl.sample_batch import map_leaves

__all__ = [
    "LARGE_INTEGER",
    "MAX_LOG_NN_OUTPUT",
    "MIN_LOG_NN_OUTPUT",
    "SMALL_NUMBER",
    "convert_to_numpy",
    "fc",
    "huber_loss",
    "l2_loss",
    "one_hot",
    "relu",
    "sigmoid",
    "softmax",
]

SMALL_NUMBER, LARGE_INTEGER = 1e-6, 100_000_000
MIN_LOG_NN_OUTPUT, MAX_LOG_NN_OUTPUT = -5, 2


def convert_to_numpy(x: Any, reduce_type: bool = True) -> Any:
    """Nested tensors as arrays, those without a dimension as numbers; `reduce_type` makes 64-bit arrays 32-bit."""

    def reduce(leaf: Any) -> Any:
        if not (reduce_type and isinstance(leaf, np.ndarray)):
            return leaf
        return leaf.astype({np.dtype("f8"): "f4", np.dtype("i8"): "i4"}.get(leaf.dtype, leaf.dtype))

    return map_leaves(reduce, convert_to_non_torch_type(x))


def fc(x: Any, weights: Any, biases: Any = None, framework: str | None = None) -> np.ndarray:
    """The output `[N, out]` of a dense layer.

    Args:
        x: inputs `[N, in]`.
        weights: `[in, out]`; a layer of PyTorch, `framework="torch"`, has `[out, in]`.
        biases: `[out]`; `None`: 0.
        framework: "torch" transposes weights that do not fit `x` as they are.
    """
    x, weights, biases = (each.numpy(force=True) if isinstance(each, Tensor) else each for each in (x, weights, biases))
    if framework == "torch" and x.shape[1] != weights.shape[0]:
        weights = weights.T
    return x @ weights + (0.0 if biases is None else biases)


def huber_loss(x: ArrayLike, delta: float = 1.0) -> np.ndarray:
    """½ x² up to |x| = δ and δ (|x| − ½ δ) beyond, of the same shape."""
    size = np.abs(x)
    return np.where(size < delta, 0.5 * np.square(x), delta * (size - 0.5 * delta))


def l2_loss(x: ArrayLike) -> float:
    """½ Σ x²."""
    return 0.5 * float(np.square(x).sum())


def one_hot(x: Any, depth: int = 0, on_value: float = 1.0, off_value: float = 0.0) -> np.ndarray:
    """Integers `[*]` as vectors `[*, depth]`; depth 0: as many entries as the greatest integer needs."""
    x = np.asarray(x, np.int64)
    return np.where(np.arange(depth or x.max() + 1) == x[..., None], on_value, off_value)


def relu(x: ArrayLike, alpha: float = 0.0) -> np.ndarray:
    """X where it is above 0, else α x."""
    x = np.asarray(x)
    return np.where(x > 0, x, alpha * x)


def sigmoid(x: ArrayLike, derivative: bool = False) -> np.ndarray:
    """1 / (1 + e⁻ˣ); with `derivative` x (1 − x), the derivative by the sigmoid's own value."""
    x = np.asarray(x)
    return x * (1 - x) if derivative else 1 / (1 + np.exp(-x))


def softmax(x: ArrayLike, axis: int = -1, epsilon: float = SMALL_NUMBER) -> np.ndarray:
    """Probabilities of logits along an axis, none below ε."""
    x = np.asarray(x)
    exponentials = np.exp(x - x.max(axis, keepdims=True))
    return np.maximum(exponentials / exponentials.sum(axis, keepdims=True), epsilon)
