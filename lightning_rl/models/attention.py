"""GTrXL: a transformer with relative positions and gates, behind any other model.

Parisotto et al. 2019, arXiv:1910.06764.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lightning_rl.models.model import Model
from lightning_rl.models.recurrent import PreviousSteps, Wrapper

__all__ = ["GRUGate", "RelativeAttention", "TransformerNetwork", "TransformerUnit"]


class TransformerNetwork(Wrapper):
    """Gated transformer units behind another model; the inputs that each unit read in earlier steps are its memory.

    Every step attends to itself and to at most `memory` steps before it, in acting and in learning alike, so both give
    the same outputs; steps before the episode's start are masked. Memories carry no gradient.

    Args:
        wrapped, num_outputs, previous: see `Wrapper`.
        num_transformer_units: number of gated units in sequence.
        dim: width between the units.
        num_heads, head_dim: number and width of the attention heads in each unit.
        memory_inference: number of earlier steps that acting attends to.
        memory_training: number of earlier steps that learning attends to; with another number than for acting, outputs
            differ.
        position_wise_mlp_dim: hidden width of the position-wise MLP.
        init_gru_gate_bias: initial bias of the gates, > 0, with which a unit starts as (nearly) the identity.
        heads: initializer, free_columns and free_init of `Wrapper`.
    """

    def __init__(
        self,
        wrapped: Model,
        num_outputs: int,
        previous: PreviousSteps,
        *,
        num_transformer_units: int = 1,
        dim: int = 64,
        num_heads: int = 1,
        head_dim: int = 32,
        memory_inference: int = 50,
        memory_training: int = 50,
        position_wise_mlp_dim: int = 32,
        init_gru_gate_bias: float = 2.0,
        **heads: Any,
    ) -> None:
        super().__init__(wrapped, num_outputs, dim, previous, **heads)
        self.memory_inference, self.memory_training, self.dim = memory_inference, memory_training, dim
        self.memory = max(memory_inference, memory_training)
        self.embedding = nn.Linear(wrapped.num_outputs + previous.size, dim)
        unit = dim, num_heads, head_dim, position_wise_mlp_dim, init_gru_gate_bias
        self.units = nn.ModuleList([TransformerUnit(*unit) for _ in range(num_transformer_units)])

    def get_initial_state(self) -> list[Tensor]:
        """An empty memory `[memory, dim]` for each unit, and how many of its entries are filled, `[1]`."""
        return [*(torch.zeros(self.memory, self.dim) for _ in self.units), torch.zeros(1)]

    def forward_rnn(
        self, inputs: Tensor, state: Sequence[Tensor], seq_lens: Tensor | None
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """The last unit's outputs `[S, L, dim]`, and the memories after the last step."""
        *memories, filled = state
        window = self.memory_inference if seq_lens is None else self.memory_training
        steps = inputs.shape[1]
        memories = [memory[:, self.memory - window :] for memory in memories]
        distance, visible = _reach(steps, window, filled.clamp(max=window))
        x = self.embedding(inputs)
        after = []
        for unit, memory in zip(self.units, memories, strict=True):
            seen = torch.cat([memory, x.detach()], dim=1)
            missing = self.memory - min(self.memory, seen.shape[1])
            after.append(torch.nn.functional.pad(seen[:, max(0, seen.shape[1] - self.memory) :], (0, 0, missing, 0)))
            x = unit(x, memory, distance, visible)
        return x, [*after, (filled + steps).clamp(max=self.memory)]


class TransformerUnit(nn.Module):
    """Attention and MLP, each behind a layer norm and joined to the stream by a gate (the paper's "GRU-gated TrXL-I").

    Args:
        dim: width of the stream.
        num_heads, head_dim: number and width of the attention heads.
        mlp_dim: hidden width of the MLP.
        gate_bias: see `GRUGate`.
    """

    def __init__(self, dim: int, num_heads: int, head_dim: int, mlp_dim: int, gate_bias: float) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = RelativeAttention(dim, num_heads, head_dim)
        self.mlp = nn.Sequential(nn.Linear(dim, mlp_dim), nn.ReLU(), nn.Linear(mlp_dim, dim))
        self.attention_gate, self.mlp_gate = GRUGate(dim, gate_bias), GRUGate(dim, gate_bias)

    def forward(self, x: Tensor, memory: Tensor, distance: Tensor, visible: Tensor) -> Tensor:
        """`x [S, L, dim]`, memory `[S, M, dim]` → `[S, L, dim]`; `distance` and `visible` as in `RelativeAttention`."""
        keys = self.attention_norm(torch.cat([memory, x], dim=1))
        queries = keys[:, memory.shape[1] :]
        x = self.attention_gate(x, self.attention(queries, keys, distance, visible).relu())
        return self.mlp_gate(x, self.mlp(self.mlp_norm(x)).relu())


class RelativeAttention(nn.Module):
    """Multi-head attention with relative positions. Dai et al. 2019, arXiv:1901.02860, section 3.3.

    Args:
        dim: width of queries and keys.
        num_heads, head_dim: number and width of the heads.
    """

    def __init__(self, dim: int, num_heads: int, head_dim: int) -> None:
        super().__init__()
        self.num_heads, self.head_dim, self.dim = num_heads, head_dim, dim
        width = num_heads * head_dim
        self.query, self.key_value = nn.Linear(dim, width, bias=False), nn.Linear(dim, 2 * width, bias=False)
        self.position, self.out = nn.Linear(dim, width, bias=False), nn.Linear(width, dim, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(num_heads, head_dim))  # the paper's u
        self.position_bias = nn.Parameter(torch.zeros(num_heads, head_dim))  # and v

    def forward(self, queries: Tensor, keys: Tensor, distance: Tensor, visible: Tensor) -> Tensor:
        """The attention output of each query.

        Args:
            queries: `[S, L, dim]`.
            keys: `[S, M + L, dim]`.
            distance: int64 `[L, M + L]`, how many steps a key is before a query; never above M where it is visible.
            visible: bool `[S, L, M + L]`, which keys a query may read: at least one.

        Returns:
            `[S, L, dim]`.
        """
        sequences, steps = queries.shape[:2]
        heads = (self.num_heads, self.head_dim)
        q = self.query(queries).unflatten(2, heads)
        k, v = self.key_value(keys).chunk(2, dim=2)
        k, v = k.unflatten(2, heads), v.unflatten(2, heads)
        window = keys.shape[1] - steps
        positions = self.position(_sinusoids(window + 1, self.dim, queries)).unflatten(1, heads)  # [M + 1, H, D]
        content = torch.einsum("slhd,skhd->shlk", q + self.content_bias, k)
        by_distance = torch.einsum("slhd,mhd->shlm", q + self.position_bias, positions)
        index = distance.clamp(0, window).expand(sequences, self.num_heads, -1, -1)
        scores = (content + by_distance.gather(3, index)) / math.sqrt(self.head_dim)
        weights = scores.masked_fill(~visible.unsqueeze(1), -torch.inf).softmax(dim=3)
        return self.out(torch.einsum("shlk,skhd->slhd", weights, v).flatten(2))


class GRUGate(nn.Module):
    """Combines a branch with the stream by the equations of a GRU (section 3.2 of the GTrXL paper).

    Args:
        dim: width of stream and update.
        bias: bias that keeps the stream if > 0; 2 in the paper.
    """

    def __init__(self, dim: int, bias: float) -> None:
        super().__init__()
        self.branch = nn.Linear(dim, 3 * dim, bias=False)
        self.stream = nn.Linear(dim, 2 * dim, bias=False)
        self.candidate = nn.Linear(dim, dim, bias=False)
        self.bias = nn.Parameter(torch.full((dim,), float(bias)))

    def forward(self, stream: Tensor, branch: Tensor) -> Tensor:
        """Both `[…, dim]` → `[…, dim]`."""
        reset_in, update_in, new_in = self.branch(branch).chunk(3, dim=-1)
        reset_of, update_of = self.stream(stream).chunk(2, dim=-1)
        reset = (reset_in + reset_of).sigmoid()
        update = (update_in + update_of - self.bias).sigmoid()
        new = (new_in + self.candidate(reset * stream)).tanh()
        return (1 - update) * stream + update * new


def _reach(steps: int, window: int, filled: Tensor) -> tuple[Tensor, Tensor]:
    """Distances `[L, M + L]` of keys from queries, and which keys `[S, L, M + L]` a query may read.

    Args:
        steps: L.
        window: M, how far back a query reaches.
        filled: `[S, 1]`, how many of the M memories (the newest) hold a step.
    """
    query = torch.arange(window, window + steps, device=filled.device).unsqueeze(1)
    key = torch.arange(window + steps, device=filled.device)
    distance = query - key
    near = (distance >= 0) & (distance <= window)
    return distance, near & (key >= window - filled).unsqueeze(1)


def _sinusoids(count: int, dim: int, like: Tensor) -> Tensor:
    """Position embeddings `[count, dim]` of the distances 0 … count − 1."""
    rates = torch.exp(torch.arange(0, dim, 2, device=like.device) * (-math.log(10_000.0) / dim))
    angles = torch.arange(count, device=like.device).unsqueeze(1) * rates
    return torch.cat([angles.sin(), angles.cos()], dim=1)[:, :dim].to(like.dtype)
