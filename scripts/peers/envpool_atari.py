"""PPO on Pong in one plain loop over EnvPool's threads, in the manner of CleanRL; a JSON object is printed last.

What CleanRL's readers get: float32 storage, `torch.distributions`, Adam over a list of parameters, one forward per
step for action and value. The hyperparameters are rl-zoo's, as in `sb3_atari.py`. Runs in its own environment:
`python scripts/benchmark.py setup`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import deque

import envpool
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Categorical

ENVS, STEPS, PASSES, MINIBATCHES = 8, 128, 4, 4
GAMMA, LAMBDA = 0.99, 0.95


def orthogonal(layer: nn.Module, gain: float = 2**0.5) -> nn.Module:
    """The layer with orthogonal weights and no bias."""
    assert isinstance(layer, nn.Conv2d | nn.Linear) and layer.bias is not None
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


class Agent(nn.Module):
    """The Nature network with a head for actions and one for values."""

    def __init__(self, actions: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for shape in ((4, 32, 8, 4), (32, 64, 4, 2), (64, 64, 3, 1)):
            layers += [orthogonal(nn.Conv2d(*shape)), nn.ReLU()]
        self.body = nn.Sequential(*layers, nn.Flatten(), orthogonal(nn.Linear(64 * 7 * 7, 512)), nn.ReLU())
        self.actor, self.critic = orthogonal(nn.Linear(512, actions), 0.01), orthogonal(nn.Linear(512, 1), 1.0)

    def forward(self, obs: Tensor) -> tuple[Categorical, Tensor]:
        """Distribution over actions and values `[N]` of pixels `[N, 4, 84, 84]`."""
        features = self.body(obs / 255.0)
        return Categorical(logits=self.actor(features)), self.critic(features).squeeze(1)


class Rollout:
    """Acts in the environments and keeps one rollout `[T, B, …]`; an ended environment resets in the next step."""

    def __init__(self, seed: int) -> None:
        self.env = envpool.make(
            "Pong-v5", env_type="gymnasium", num_envs=ENVS, episodic_life=True, reward_clip=True, seed=seed
        )
        self.obs = torch.zeros(STEPS, ENVS, 4, 84, 84)
        self.actions = torch.zeros(STEPS, ENVS)
        self.logp, self.rewards, self.ended, self.values = torch.zeros(4, STEPS, ENVS)
        self.now, self.begins = torch.as_tensor(self.env.reset()[0]).float(), torch.zeros(ENVS)
        self.running, self.returns = np.zeros(ENVS), deque[float](maxlen=100)

    @torch.no_grad()
    def collect(self, agent: Agent) -> tuple[Tensor, Tensor]:
        """Play `STEPS` steps; advantages and value targets come back."""
        for t in range(STEPS):
            self.obs[t], self.ended[t] = self.now, self.begins
            dist, self.values[t] = agent(self.now)
            self.actions[t] = action = dist.sample()
            self.logp[t] = dist.log_prob(action)
            obs, reward, terminated, truncated, info = self.env.step(action.numpy())
            self.rewards[t] = torch.as_tensor(reward)
            self.now, self.begins = torch.as_tensor(obs).float(), torch.as_tensor(terminated | truncated).float()
            self.running += info["reward"]
            over = (info["terminated"] | truncated).astype(bool)
            self.returns.extend(self.running[over].tolist())
            self.running[over] = 0.0
        advantages, last, after, going_on = (
            torch.zeros(STEPS, ENVS),
            torch.zeros(ENVS),
            agent(self.now)[1],
            1 - self.begins,
        )
        for t in reversed(range(STEPS)):
            delta = self.rewards[t] + GAMMA * after * going_on - self.values[t]
            advantages[t] = last = delta + GAMMA * LAMBDA * going_on * last
            after, going_on = self.values[t], 1 - self.ended[t]
        return advantages, advantages + self.values


def learn(agent: Agent, optimizer: torch.optim.Optimizer, rollout: Rollout, clip: float) -> None:
    """Four sweeps over the rollout that `agent` collects first."""
    advantages, targets = (column.flatten() for column in rollout.collect(agent))
    obs, actions, logp = (column.flatten(0, 1) for column in (rollout.obs, rollout.actions, rollout.logp))
    for _ in range(PASSES):
        for part in torch.randperm(len(obs)).chunk(MINIBATCHES):
            dist, values = agent(obs[part])
            ratio = (dist.log_prob(actions[part]) - logp[part]).exp()
            a = advantages[part]
            a = (a - a.mean()) / (a.std() + 1e-8)
            surrogate = torch.min(ratio * a, ratio.clamp(1 - clip, 1 + clip) * a).mean()
            loss = 0.5 * F.mse_loss(values, targets[part]) - surrogate - 0.01 * dist.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()


def train(args: argparse.Namespace) -> dict[str, float]:
    """Learn for `args.env_steps`; the clock runs from the first reset."""
    torch.manual_seed(args.seed)
    agent = Agent(6)
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
    start, env_steps = time.perf_counter(), 0
    rollout = Rollout(args.seed)
    while env_steps < args.env_steps:
        left = 1 - env_steps / args.env_steps
        optimizer.param_groups[0]["lr"] = 2.5e-4 * left
        learn(agent, optimizer, rollout, 0.1 * left)
        env_steps += STEPS * ENVS
    seconds = time.perf_counter() - start
    numbers = {"env_steps": env_steps, "seconds": seconds, "steps_per_s": env_steps / seconds}
    return numbers | ({"return": float(np.mean(rollout.returns))} if rollout.returns else {})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env-steps", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=0, help="torch threads; 0 keeps torch's default")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    print(json.dumps(train(options)))
