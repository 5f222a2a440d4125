"""What a PPO update with an LSTM costs against a bare `nn.LSTM` loop on the same sequences.

The bare loop gets its sequences padded beforehand, and computes the same loss with a fused optimizer.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import gymnasium as gym
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from lightning_rl.policies import PPO
from lightning_rl.rollouts import RolloutWorker

PASSES, MINIBATCHES, ROUNDS = 5, 4, 7
COLUMNS = ("obs", "actions", "action_logp", "advantages", "value_targets")


class Bare(nn.Module):
    """The network that `use_lstm` makes of CartPole's observations."""

    def __init__(self, cells: int) -> None:
        super().__init__()
        self.first, self.lstm = nn.Linear(4, 64), nn.LSTM(64, cells, batch_first=True)
        self.actions, self.values = nn.Linear(cells, 2), nn.Linear(cells, 1)

    def forward(self, obs: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Logits `[S, L, 2]` and values `[S, L]`."""
        hidden, _ = self.lstm(self.first(obs).tanh(), tuple(part.unsqueeze(0) for part in state))
        return self.actions(hidden), self.values(hidden).squeeze(-1)


def bare_update(net: Bare, optimizer: torch.optim.Optimizer, rows: dict[str, Tensor], mask: Tensor) -> None:
    """The sweeps over padded sequences `[S, L, …]`, with a mask where PPO has none."""
    for _ in range(PASSES):
        for chosen in torch.randperm(len(mask)).tensor_split(MINIBATCHES):
            batch, inside = {name: column[chosen] for name, column in rows.items()}, mask[chosen]
            count = inside.sum()
            logits, values = net(batch["obs"], (batch["hidden"], batch["cell"]))
            logp = logits.log_softmax(-1).gather(-1, batch["actions"].unsqueeze(-1)).squeeze(-1)
            advantages = batch["advantages"]
            advantages = advantages - (advantages * inside).sum() / count
            advantages = advantages / ((advantages.square() * inside).sum() / count).sqrt()
            ratio = (logp - batch["action_logp"]).exp()
            policy_loss = -(torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages) * inside).sum() / count
            value_loss = ((values - batch["value_targets"]).square() * inside).sum() / count
            optimizer.zero_grad()
            (policy_loss + 0.5 * value_loss).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            optimizer.step()


def seconds(update: Callable[[], object]) -> float:
    """How long one call takes."""
    started = time.perf_counter()
    update()
    return time.perf_counter() - started


def ratio(cells: int) -> float:
    """Median over alternating rounds of ours / bare."""
    env = gym.make("CartPole-v1")
    model = {"use_lstm": True, "lstm_cell_size": cells, "max_seq_len": 20, "fcnet_hiddens": [64]}
    policy = PPO(env.observation_space, env.action_space, model=model, passes=PASSES, minibatches=MINIBATCHES)
    fragment = RolloutWorker("CartPole-v1", policy, num_envs=16, fragment_length=128).sample()
    rows = policy.postprocess_trajectory(fragment)
    lens = rows.seq_lens.tolist()
    padded = {name: pad_sequence(list(rows[name].split(lens)), batch_first=True) for name in COLUMNS}
    padded |= {"hidden": rows.state_in["0"], "cell": rows.state_in["1"]}
    mask = (torch.arange(padded["obs"].shape[1]) < rows.seq_lens.unsqueeze(1)).float()
    net = Bare(cells)
    optimizer = torch.optim.Adam(net.parameters(), 3e-4, fused=True)
    sides = (lambda: policy.learn_on_batch(rows)), (lambda: bare_update(net, optimizer, padded, mask))
    for side in sides:
        side()
    return statistics.median(seconds(sides[0]) / seconds(sides[1]) for _ in range(ROUNDS))


if __name__ == "__main__":
    torch.set_num_threads(1)
    for size in (64, 256):
        print(f"{size} cells: {ratio(size):.2f} × the bare loop")
