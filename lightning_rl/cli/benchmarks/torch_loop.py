"""PPO on CartPole in plain torch, written for speed: what the same work costs without Lightning.

The last line printed is a JSON object. `--measure-bound` trains nothing: it measures environment, acting and updating
each alone, which bounds what any loop on this machine can reach.

The defaults are rl-zoo's tuned hyperparameters of Stable-Baselines3 for CartPole-v1. `--plain` swaps the tricks (all
parameters in one flat tensor, a surrogate with fewer operations) for the ordinary idioms: fused Adam over a list of
parameters and `clip_grad_norm_`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import Tensor, nn

Prepared = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]  # `Learner.prepared`
Rows = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]  # obs [N, 4], actions, logp, advantages, value targets [N]
SCHEDULE_STEPS = 100_000  # rl-zoo's budget: learning rate and clip fall to 0 over it


@dataclass(slots=True)
class Fragment:
    """One rollout of `T` rows in `B` environments, NEXT_STEP autoreset; the tensors and arrays are preallocated."""

    obs: np.ndarray  # [T+1, B, 4]
    logits: Tensor  # [T, B, 2]
    actions: np.ndarray  # [T, B]
    rewards: np.ndarray  # [T, B]
    terminated: np.ndarray  # bool [T, B]
    truncated: np.ndarray
    valid: np.ndarray  # False on the row after an end, which is the reset

    @classmethod
    def empty(cls, steps: int, envs: int) -> Fragment:
        """Room for a rollout."""
        shape = (steps, envs)
        flags = (np.empty(shape, dtype=bool) for _ in range(3))
        rows = (torch.empty(*shape, 2), np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.float32), *flags)
        return cls(np.empty((steps + 1, envs, 4), dtype=np.float32), *rows)


def make_env(envs: int, native: bool) -> gym.vector.VectorEnv[Any, Any, Any]:
    """CartPole-v1, `envs` times."""
    if native:
        return gym.make_vec("CartPole-v1", num_envs=envs, vectorization_mode="vector_entry_point")
    creators = [lambda: gym.make("CartPole-v1", disable_env_checker=True)] * envs
    return SyncVectorEnv(creators, autoreset_mode=AutoresetMode.NEXT_STEP, copy=False)


def network(outputs: int, gain: float) -> nn.Sequential:
    """2 × 64 tanh with orthogonal weights, as Stable-Baselines3 makes it."""
    layers = [nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs)]
    for layer, scale in ((layers[0], 2**0.5), (layers[2], 2**0.5), (layers[4], gain)):
        nn.init.orthogonal_(layer.weight, scale)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers)


class Sampler:
    """Acts: one forward of the actor a step; noise is drawn and probabilities are taken once a rollout."""

    def __init__(self, env: gym.vector.VectorEnv[Any, Any, Any], actor: nn.Module, steps: int, seed: int) -> None:
        self.env, self.actor, self.generator = env, actor, torch.Generator().manual_seed(seed)
        self.fragment = Fragment.empty(steps, env.num_envs)
        self.obs, _ = env.reset(seed=seed)
        self.ended = np.zeros(env.num_envs, dtype=bool)
        self.returns = np.zeros(env.num_envs)
        self.episodes: deque[float] = deque(maxlen=100)

    @torch.no_grad()
    def sample(self) -> Fragment:
        """Fill the fragment."""
        f, env, actor = self.fragment, self.env, self.actor
        obs, actions = torch.from_numpy(f.obs), torch.from_numpy(f.actions)
        # argmax(logits − log E) with E ~ Exp(1) is a sample of the categorical distribution.
        noise = torch.empty_like(f.logits).exponential_(generator=self.generator).log_()
        for t in range(len(f.actions)):
            f.obs[t] = self.obs
            f.logits[t] = logits = actor(obs[t])
            torch.argmax(logits - noise[t], -1, out=actions[t])
            self.obs, rewards, terminated, truncated, _ = env.step(f.actions[t])
            f.rewards[t], f.terminated[t], f.truncated[t], f.valid[t] = rewards, terminated, truncated, ~self.ended
            self.ended = terminated | truncated
            self.returns += rewards * f.valid[t]
            if self.ended.any():
                self.episodes.extend(self.returns[self.ended].tolist())
                self.returns[self.ended] = 0.0
        f.obs[-1] = self.obs
        return f


@torch.no_grad()
def rows_of(f: Fragment, critic: nn.Module, gamma: float, lam: float) -> Rows:
    """Generalized advantages (in numpy: 8 numbers are not worth a tensor), and the experience rows, flattened."""
    obs = torch.from_numpy(f.obs)
    values = critic(obs.flatten(0, 1)).view(len(f.obs), -1).numpy()
    delta = f.rewards + gamma * values[1:] * ~f.terminated - values[:-1]
    trace = np.float32(gamma * lam) * ~(f.terminated | f.truncated)
    for t in range(len(delta) - 2, -1, -1):
        delta[t] += trace[t] * delta[t + 1]
    actions = torch.from_numpy(f.actions)
    logp = torch.log_softmax(f.logits, -1).gather(-1, actions.unsqueeze(-1)).squeeze(-1)
    columns = (obs[:-1], actions, logp, torch.from_numpy(delta), torch.from_numpy(delta + values[:-1]))
    if f.valid.all():
        obs, actions, logp, advantages, targets = (column.flatten(0, 1) for column in columns)
    else:
        valid = torch.from_numpy(np.flatnonzero(f.valid))
        obs, actions, logp, advantages, targets = (column.flatten(0, 1).index_select(0, valid) for column in columns)
    return obs, actions, logp, advantages, targets


class Learner:
    """Steps actor and critic: clipped surrogate, value error, gradient norm, Adam.

    Unless `plain`, all parameters are views of one tensor and all gradients of another: zeroing, norm and Adam are one
    call each.
    """

    def __init__(self, actor: nn.Module, critic: nn.Module, plain: bool) -> None:
        self.actor, self.critic, self.plain = actor, critic, plain
        self.parameters = [*actor.parameters(), *critic.parameters()]
        if not plain:
            self.flat = nn.Parameter(torch.cat([p.detach().flatten() for p in self.parameters]))
            self.flat.grad = self.gradient = torch.zeros_like(self.flat)
            sizes = [p.numel() for p in self.parameters]
            parts = zip(self.parameters, self.flat.detach().split(sizes), self.gradient.split(sizes), strict=True)
            for p, data, grad in parts:
                p.data, p.grad = data.view_as(p), grad.view_as(p)
        self.optimizer = torch.optim.Adam(self.parameters if plain else [self.flat], lr=1e-3, eps=1e-5, fused=True)

    def learn(self, rows: Rows, passes: int, minibatches: int, clip: float, generator: torch.Generator) -> None:
        """`passes` sweeps over the rows in `minibatches` shuffled parts; the mean of a single part needs no shuffle."""
        whole = self.prepared(rows, clip) if minibatches == 1 else None
        for _ in range(passes):
            if whole is not None:
                self.step(*whole, clip)
                continue
            for part in torch.randperm(len(rows[0]), generator=generator).chunk(minibatches):
                obs, actions, logp, advantages, targets = (column.index_select(0, part) for column in rows)
                self.step(*self.prepared((obs, actions, logp, advantages, targets), clip), clip)

    def prepared(self, rows: Rows, clip: float) -> Prepared:
        """Standardized advantages, actions as an index, and the bound min(ratio · A, bound) of the surrogate."""
        obs, actions, logp, advantages, targets = rows
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        bound = advantages + clip * advantages.abs()
        return obs, actions.unsqueeze(1), logp, advantages, bound, targets

    def step(
        self, obs: Tensor, actions: Tensor, old: Tensor, advantages: Tensor, bound: Tensor, targets: Tensor, clip: float
    ) -> None:
        """One gradient step."""
        if self.plain:
            self.optimizer.zero_grad(set_to_none=True)
        else:
            self.gradient.zero_()
        logp = F.log_softmax(self.actor(obs), -1).gather(1, actions).squeeze(1)
        ratio = (logp - old).exp()
        capped = ratio.clamp(1 - clip, 1 + clip) * advantages if self.plain else bound
        surrogate = torch.min(ratio * advantages, capped).mean()
        loss = 0.5 * F.mse_loss(self.critic(obs).squeeze(1), targets) - surrogate
        loss.backward()
        if self.plain:
            nn.utils.clip_grad_norm_(self.parameters, 0.5)
        else:
            norm = torch.linalg.vector_norm(self.gradient).item()
            if norm > 0.5:
                self.gradient.mul_(0.5 / (norm + 1e-6))
        self.optimizer.step()


def train(args: argparse.Namespace) -> dict[str, float]:
    """Learn for `args.env_steps`; the clock runs from the first reset."""
    actor, critic = network(2, 0.01), network(1, 1.0)
    learner = Learner(actor, critic, args.plain)  # before the clock: the first Adam of a process imports torch._dynamo
    shuffle = torch.Generator().manual_seed(args.seed)
    start = time.perf_counter()
    sampler = Sampler(make_env(args.envs, args.native), actor, args.fragment, args.seed)
    env_steps, collecting = 0, 0.0
    while env_steps < args.env_steps:
        began = time.perf_counter()
        fragment = sampler.sample()
        collecting += time.perf_counter() - began
        left = max(0.0, 1 - env_steps / SCHEDULE_STEPS) if args.schedule else 1.0
        env_steps += int(fragment.valid.sum())
        for group in learner.optimizer.param_groups:
            group["lr"] = args.lr * left
        rows = rows_of(fragment, critic, args.gamma, args.gae_lambda)
        learner.learn(rows, args.passes, args.minibatches, args.clip * left, shuffle)
    seconds = time.perf_counter() - start
    mean = float(np.mean(sampler.episodes)) if sampler.episodes else 0.0
    numbers = {"env_steps": env_steps, "seconds": seconds, "steps_per_s": env_steps / seconds}
    return {**numbers, "collect_s": collecting, "return": mean}


def rate(work: Callable[[], object], rows: int, seconds: float = 0.25, rounds: int = 5) -> float:
    """Rows a second: the median over rounds."""
    work()
    began = time.perf_counter()
    work()
    calls = max(1, int(seconds / max(time.perf_counter() - began, 1e-7)))
    rates = []
    for _ in range(rounds):
        began = time.perf_counter()
        for _ in range(calls):
            work()
        rates.append(rows * calls / (time.perf_counter() - began))
    return median(rates)


def bound(args: argparse.Namespace) -> dict[str, float]:
    """Env steps a second if there were nothing but environment steps, forwards with sampling, and gradient steps."""
    env, actor, critic = make_env(args.envs, args.native), network(2, 0.01), network(1, 1.0)
    env.reset(seed=args.seed)
    actions = np.random.default_rng(args.seed).integers(0, 2, args.envs)
    obs, generator = np.zeros((args.envs, 4), dtype=np.float32), torch.Generator().manual_seed(args.seed)

    @torch.no_grad()
    def act() -> np.ndarray:
        logits = actor(torch.from_numpy(obs))
        noise = torch.empty_like(logits).exponential_(generator=generator).log_()
        chosen = (logits - noise).argmax(-1, keepdim=True)
        torch.log_softmax(logits, -1).gather(-1, chosen)
        return chosen.numpy()

    size = args.envs * args.fragment // args.minibatches
    learner = Learner(actor, critic, args.plain)
    chosen, logp = torch.randint(0, 2, (size,)), torch.full((size,), -0.69)
    prepared = learner.prepared((torch.randn(size, 4), chosen, logp, torch.randn(size), torch.randn(size)), args.clip)
    rates = {
        "env_rate": rate(lambda: env.step(actions), args.envs),
        "act_rate": rate(act, args.envs),
        "update_rate": rate(lambda: learner.step(*prepared, args.clip), size),
    }
    seconds = 1 / rates["env_rate"] + 1 / rates["act_rate"] + args.passes / rates["update_rate"]
    return {**rates, "steps_per_s": 1 / seconds}


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env-steps", type=int, default=30_000)
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--fragment", type=int, default=32, help="steps per environment in one rollout")
    parser.add_argument("--passes", type=int, default=20)
    parser.add_argument("--minibatches", type=int, default=1)
    parser.add_argument("--gamma", type=float, default=0.98)
    parser.add_argument("--gae-lambda", type=float, default=0.8)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--clip", type=float, default=0.2)
    parser.add_argument("--schedule", action=argparse.BooleanOptionalAction, default=True, help="lr and clip fall to 0")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--native", action="store_true", help="the environment's own vector form")
    parser.add_argument("--plain", action="store_true", help="ordinary idioms")
    parser.add_argument("--measure-bound", action="store_true", help="rates measured alone, no training")
    return parser.parse_args()


if __name__ == "__main__":
    options = arguments()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    print(json.dumps(bound(options) if options.measure_bound else train(options)))
