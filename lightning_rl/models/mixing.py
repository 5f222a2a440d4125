"""The mixing network of QMIX: its weights are functions of the state."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from lightning_rl.losses.mixing import monotonic_mix
from lightning_rl.models.layers import MLP

__all__ = ["QMixer"]


class QMixer(nn.Module):
    """Q_tot from the members' values and the state. Rashid et al. 2018, arXiv:1803.11485, figure 2 and section 5.

    Hypernetworks compute the weights and biases of a network with one hidden layer from the state: linear ones (or with
    hidden layers of `hypernet_hiddens`) all but the last bias V(s), which has its own hidden layer.

    Args:
        members: number n of values to mix.
        state_size: width of the state.
        embed_dim: width E of the mixing network's hidden layer.
        hypernet_hiddens: widths of hidden layers with ReLU in the hypernetworks of the weights.
    """

    def __init__(
        self, members: int, state_size: int, *, embed_dim: int = 32, hypernet_hiddens: Sequence[int] = ()
    ) -> None:
        super().__init__()
        self.members, self.embed_dim = members, embed_dim
        self.first = hypernetwork(state_size, hypernet_hiddens, members * embed_dim)
        self.first_bias = nn.Linear(state_size, embed_dim)
        self.last = hypernetwork(state_size, hypernet_hiddens, embed_dim)
        self.last_bias = hypernetwork(state_size, (embed_dim,), 1)

    def forward(self, q_values: Tensor, state: Tensor) -> Tensor:
        """Q_tot `[N]` of the members' values `[N, n]` in states `[N, state_size]`."""
        first = self.first(state).view(len(state), self.members, self.embed_dim)
        q_total = monotonic_mix(
            q_values, first, self.first_bias(state), self.last(state), self.last_bias(state).squeeze(1)
        )
        return q_total.float()  # float32 in any precision of the layers


def hypernetwork(state_size: int, hiddens: Sequence[int], outputs: int) -> nn.Sequential:
    """Layers from the state to that many weights, `[N, state_size]` → `[N, outputs]`, with PyTorch's first weights."""
    hidden = MLP(state_size, hiddens, "relu", "default")
    return nn.Sequential(hidden, nn.Linear(hidden.size, outputs))
