"""SAC on Pendulum in plain torch, in one loop: what the work costs without a framework.

The last line printed is a JSON object. The idioms are those of single-file implementations: a wrapped vector
environment of one, numpy replay, two critic modules, an optimizer each for actor, critics and temperature, torch's
distributions. `--bare` computes the same as fast as it can: see `Bare`.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from loop_parts import PackedReplay, Replay, Single, VectorOfOne, flat_parameters
from torch import Tensor, nn
from torch.distributions import Normal

OBS, ACTIONS, BOUND = 3, 1, 2.0  # Pendulum's: the torque is within ± 2
WIDTH, TARGET_ENTROPY = 256, -1.0


def network(inputs: int, outputs: int) -> nn.Sequential:
    """2 × 256 ReLU."""
    hidden = (nn.Linear(inputs, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())
    return nn.Sequential(*hidden, nn.Linear(WIDTH, outputs))


def soft_q(critic: nn.Module, obs: Tensor, actions: Tensor) -> Tensor:
    """`[N]`."""
    return critic(torch.cat([obs, actions], 1)).squeeze(1)


class Plain:
    """Modules and optimizers one by one; the actor learns every second time, twice."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.updates = args, 0
        self.actor = network(OBS, 2 * ACTIONS)
        self.critics = nn.ModuleList(network(OBS + ACTIONS, 1) for _ in range(2))
        self.targets = nn.ModuleList(network(OBS + ACTIONS, 1) for _ in range(2))
        self.targets.load_state_dict(self.critics.state_dict())
        self.log_alpha = torch.zeros(1, requires_grad=True)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=args.lr)
        self.critic_optimizer = torch.optim.Adam(self.critics.parameters(), lr=args.lr)
        self.alpha_optimizer = torch.optim.Adam([self.log_alpha], lr=args.lr)
        self.replay = Replay(args.capacity, OBS, np.zeros(ACTIONS, dtype=np.float32))

    def act(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Actions `[N, 1]` in the torque's units, and their log density `[N]`."""
        mean, log_std = self.actor(obs).chunk(2, -1)
        normal = Normal(mean, log_std.clamp(-20, 2).exp())
        raw = normal.rsample()
        squashed = torch.tanh(raw)
        logp = normal.log_prob(raw) - torch.log(BOUND * (1 - squashed.square()) + 1e-6)
        return BOUND * squashed, logp.sum(1)

    @torch.no_grad()
    def action(self, obs: np.ndarray) -> np.ndarray:
        """What the environment gets."""
        return self.act(torch.as_tensor(obs).unsqueeze(0))[0][0].numpy()

    def learn(self) -> None:
        """One update of the critics."""
        args = self.args
        obs, actions, next_obs, rewards, terminated = self.replay.sample(args.batch_size)
        alpha = self.log_alpha.exp().item()
        with torch.no_grad():
            next_actions, next_logp = self.act(next_obs)
            first, second = (soft_q(target, next_obs, next_actions) for target in self.targets)
            targets = rewards + args.gamma * (1 - terminated) * (torch.min(first, second) - alpha * next_logp)
        first, second = (soft_q(critic, obs, actions) for critic in self.critics)
        loss = F.mse_loss(first, targets) + F.mse_loss(second, targets)
        self.critic_optimizer.zero_grad()
        loss.backward()
        self.critic_optimizer.step()
        self.updates += 1
        if self.updates % args.policy_frequency == 0:
            for _ in range(args.policy_frequency):
                self.learn_policy(obs)
        for critic, target in zip(self.critics.parameters(), self.targets.parameters(), strict=True):
            target.data.copy_(args.tau * critic.data + (1 - args.tau) * target.data)

    def learn_policy(self, obs: Tensor) -> None:
        """One update of the actor and of the temperature, with its own actions for each."""
        alpha = self.log_alpha.exp().item()
        actions, logp = self.act(obs)
        first, second = (soft_q(critic, obs, actions) for critic in self.critics)
        loss = (alpha * logp - torch.min(first, second)).mean()
        self.actor_optimizer.zero_grad()
        loss.backward()
        self.actor_optimizer.step()
        with torch.no_grad():
            _, logp = self.act(obs)
        alpha_loss = (-self.log_alpha.exp() * (logp + TARGET_ENTROPY)).mean()
        self.alpha_optimizer.zero_grad()
        alpha_loss.backward()
        self.alpha_optimizer.step()


class Twins(nn.Module):
    """Two critics whose matrices are multiplied as one batch."""

    def __init__(self) -> None:
        super().__init__()
        sizes = (OBS + ACTIONS, WIDTH, WIDTH, 1)
        shapes = [shape for i, o in pairwise(sizes) for shape in ((2, i, o), (2, 1, o))]
        bounds = [1 / math.sqrt(i) for i in sizes[:-1] for _ in range(2)]
        drawn = (torch.empty(shape).uniform_(-bound, bound) for shape, bound in zip(shapes, bounds, strict=True))
        self.layers = nn.ParameterList(drawn)


def twin_q(layers: Sequence[Tensor], inputs: Tensor) -> Tensor:
    """Both critics' values `[2, N]` of inputs `[N, 4]`."""
    w1, b1, w2, b2, w3, b3 = layers
    hidden = torch.baddbmm(b1, inputs.expand(2, -1, -1), w1).relu_()
    return torch.baddbmm(b3, torch.baddbmm(b2, hidden, w2).relu_(), w3).squeeze(-1)


class Bare:
    """One loss, one backward, one fused Adam over a flat parameter; the leanest that plain torch does.

    Twin critics are a batch of two. All parameters are views of one tensor and all gradients of another; the targets
    follow in one operation. Denormal numbers count as zero (see `dqn_loop.py`). Actions are in ± 1 until the
    environment gets them.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        torch.set_flush_denormal(True)
        self.args, self.updates = args, 0
        self.actor, self.twins = network(OBS, 2 * ACTIONS), Twins()
        self.log_alpha = nn.Parameter(torch.zeros(()))
        self.critics = critics = list(self.twins.parameters())
        self.flat, self.grads = flat_parameters([*critics, *self.actor.parameters(), self.log_alpha])
        size = sum(p.numel() for p in critics)
        self.source, self.target = self.flat.detach()[:size], self.flat.detach()[:size].clone()
        pieces = self.target.split([p.numel() for p in critics])
        self.target_layers = [piece.view_as(p) for piece, p in zip(pieces, critics, strict=True)]
        self.frozen_layers = [p.detach() for p in critics]  # views: they see every update
        self.optimizer = torch.optim.Adam([self.flat], lr=args.lr, fused=True)
        self.replay = PackedReplay(args.capacity, OBS, ACTIONS)

    def act(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Actions `[N, 1]` within ± 1, and their log density `[N]`."""
        mean, log_std = self.actor(obs).chunk(2, -1)
        log_std = log_std.clamp(-20, 2)
        raw = torch.addcmul(mean, log_std.exp(), noise)
        squash = 2 * (math.log(2) - raw - F.softplus(-2 * raw))
        logp = -0.5 * noise.square() - log_std - (0.5 * math.log(2 * math.pi) + squash)
        return raw.tanh(), logp.sum(1)

    @torch.no_grad()
    def action(self, obs: np.ndarray) -> np.ndarray:
        """What the environment gets."""
        mean, log_std = self.actor(torch.from_numpy(obs)).numpy()
        raw = mean + math.exp(min(max(log_std, -20), 2)) * np.random.standard_normal()
        return np.asarray([BOUND * math.tanh(raw)], dtype=np.float32)

    def learn(self) -> None:
        """One update of everything."""
        args, replay = self.args, self.replay
        rows, noise = replay.sample(args.batch_size), torch.randn(2, args.batch_size, ACTIONS)
        obs, next_obs = rows[:, replay.obs], rows[:, replay.next_obs]
        with torch.no_grad():
            alpha = self.log_alpha.exp()
            next_actions, next_logp = self.act(next_obs, noise[0])
            values = twin_q(self.target_layers, torch.cat([next_obs, next_actions], 1)).amin(0) - alpha * next_logp
            targets = torch.addcmul(rows[:, -2], args.gamma * (1 - rows[:, -1]), values).expand(2, -1)
        critic_loss = F.mse_loss(twin_q(self.critics, rows[:, : OBS + ACTIONS]), targets)  # half the sum of two means
        actions, logp = self.act(obs, noise[1])
        values = twin_q(self.frozen_layers, torch.cat([obs, actions], 1)).amin(0)
        actor_loss = (alpha * logp - values).mean()
        alpha_loss = -self.log_alpha * (logp.detach().mean() + TARGET_ENTROPY)
        self.grads.zero_()
        (critic_loss + actor_loss + alpha_loss).backward()
        self.optimizer.step()
        self.target.lerp_(self.source, args.tau)
        self.updates += 1


class Loop:
    """A learner in its environment.

    Args:
        args: the command line.
        form: how the learner computes.
    """

    def __init__(self, args: argparse.Namespace, form: type[Plain] | type[Bare]) -> None:
        self.args, self.learner = args, form(args)
        self.env = (Single if form is Bare else VectorOfOne)("Pendulum-v1", args.seed)
        self.scale = 1 / BOUND if form is Bare else 1.0
        self.step = 0

    def advance(self, steps: int) -> None:
        """Act and learn for that many env steps."""
        learner, env, starts = self.learner, self.env, self.args.learning_starts
        for _ in range(steps):
            action = env.random_action() if self.step < starts else learner.action(env.obs)
            obs, next_obs, reward, terminated = env.step(action)
            learner.replay.add(obs, action * self.scale, next_obs, reward, terminated)
            if self.step >= starts:
                learner.learn()
            self.step += 1


def train(args: argparse.Namespace) -> dict[str, float]:
    """Learn; the clock runs when the first Adam is made, for that imports much."""
    loop = Loop(args, Bare if args.bare else Plain)
    start = time.perf_counter()
    loop.advance(args.env_steps)
    seconds, returns, updates = time.perf_counter() - start, list(loop.env.returns), loop.learner.updates
    rates = {"updates_per_s": updates / seconds, "steps_per_s": args.env_steps / seconds}
    mean = float(np.mean(returns[-20:])) if returns else math.nan
    return {"env_steps": args.env_steps, "updates": updates, "seconds": seconds, **rates, "return": mean}


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env-steps", type=int, default=5_000)
    parser.add_argument("--bare", action="store_true", help="as fast as plain torch does it")
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--tau", type=float, default=0.005)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--capacity", type=int, default=100_000)
    parser.add_argument("--learning-starts", type=int, default=100, help="random actions before the first update")
    parser.add_argument(
        "--policy-frequency", type=int, default=2, help="the plain form's: so rarely, so often in a row"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(given)


if __name__ == "__main__":
    options = arguments()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    np.random.seed(options.seed)
    print(json.dumps(train(options)))
