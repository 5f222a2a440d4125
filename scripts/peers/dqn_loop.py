"""DQN on CartPole in plain torch, in one loop: what the work costs without a framework.

The last line printed is a JSON object. The defaults are rl-zoo's tuned hyperparameters of Stable-Baselines3. The idioms
are those of single-file implementations: a wrapped vector environment of one, numpy replay, Adam over a list of
parameters. `--bare` computes the same as fast as it can: see `Bare`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from loop_parts import PackedReplay, Replay, Single, VectorOfOne, flat_parameters
from torch import nn

EXPLORATION_STEPS, FINAL_EPSILON = 8_000, 0.04  # 16 % of rl-zoo's 50,000 env steps, whatever part of them is run
MAX_GRAD_NORM = 10.0


def network() -> nn.Sequential:
    """2 × 256 ReLU."""
    return nn.Sequential(nn.Linear(4, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 2))


class Plain:
    """Q-network, target, replay, Adam in torch's default form."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.q, self.target = args, network(), network()
        self.replay = Replay(args.capacity, 4, np.zeros(1, dtype=np.int64))
        self.optimizer = torch.optim.Adam(self.q.parameters(), lr=args.lr)
        self.copy_target()

    def copy_target(self) -> None:
        """Hard update."""
        self.target.load_state_dict(self.q.state_dict())

    def best(self, obs: np.ndarray) -> int:
        """Greedy action."""
        return int(self.q(torch.as_tensor(obs).unsqueeze(0)).argmax(1).item())

    def learn(self) -> None:
        """`gradient_steps` updates."""
        for _ in range(self.args.gradient_steps):
            obs, actions, next_obs, rewards, terminated = self.replay.sample(self.args.batch_size)
            with torch.no_grad():
                targets = rewards + self.args.gamma * (1 - terminated) * self.target(next_obs).max(1).values
            values = self.q(obs).gather(1, actions).squeeze(1)
            loss = F.smooth_l1_loss(values, targets)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.q.parameters(), MAX_GRAD_NORM)
            self.optimizer.step()


class Bare:
    """The same maths as fast as torch does it without a compiler.

    All parameters are views of one tensor and all gradients of another. Replay is drawn once for all the updates
    between two steps of the environment, and so are the targets, whose network stands still meanwhile. Denormal numbers
    count as zero: Adam's averages of units that a ReLU has switched off decay into them, and each costs 100 cycles.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        torch.set_flush_denormal(True)
        self.args, self.q, self.target = args, network(), network()
        self.replay = PackedReplay(args.capacity, 4, 1)
        self.flat, self.grads = flat_parameters(list(self.q.parameters()))
        self.flat_target, _ = flat_parameters(list(self.target.parameters()))
        self.optimizer = torch.optim.Adam([self.flat], lr=args.lr, fused=True)
        self.copy_target()

    @torch.no_grad()
    def copy_target(self) -> None:
        """Hard update."""
        self.flat_target.copy_(self.flat)

    @torch.no_grad()
    def best(self, obs: np.ndarray) -> int:
        """Greedy action."""
        left, right = self.q(torch.from_numpy(obs)).tolist()
        return int(right > left)

    def learn(self) -> None:
        """`gradient_steps` updates."""
        size, replay = self.args.batch_size, self.replay
        rows = replay.sample(self.args.gradient_steps * size)
        with torch.no_grad():
            targets = rows[:, -2] + self.args.gamma * (1 - rows[:, -1]) * self.target(rows[:, replay.next_obs]).amax(-1)
        columns = (rows[:, replay.obs], rows[:, replay.actions].long(), targets)
        for obs, actions, target in zip(*(column.split(size) for column in columns), strict=True):
            self.grads.zero_()
            F.smooth_l1_loss(self.q(obs).gather(1, actions).squeeze(1), target).backward()
            norm = torch.linalg.vector_norm(self.grads).item()
            if norm > MAX_GRAD_NORM:
                self.grads.mul_(MAX_GRAD_NORM / (norm + 1e-6))
            self.optimizer.step()


class Loop:
    """A learner in its environment.

    Args:
        args: the command line.
        form: how the learner computes.
    """

    def __init__(self, args: argparse.Namespace, form: type[Plain] | type[Bare]) -> None:
        self.args, self.learner = args, form(args)
        self.env = (Single if form is Bare else VectorOfOne)("CartPole-v1", args.seed)
        self.rng = np.random.default_rng(args.seed)
        self.step = self.updates = 0
        self.solved = False

    def advance(self, steps: int) -> None:
        """Act and learn for that many env steps, or until it is solved."""
        args, learner, env = self.args, self.learner, self.env
        for _ in range(steps):
            epsilon = max(FINAL_EPSILON, 1 - (1 - FINAL_EPSILON) * self.step / EXPLORATION_STEPS)
            explore = self.step < args.learning_starts or self.rng.random() < epsilon
            action = env.random_action() if explore else learner.best(env.obs)
            obs, next_obs, reward, terminated = env.step(action)
            learner.replay.add(obs, action, next_obs, reward, terminated)
            self.step += 1
            if self.step % args.target_update == 0:
                learner.copy_target()
            if self.step > args.learning_starts and self.step % args.train_freq == 0:
                learner.learn()
                self.updates += args.gradient_steps
            if env.ended and args.stop_return is not None:
                self.solved = len(env.returns) == 100 and float(np.mean(env.returns)) >= args.stop_return
                if self.solved:
                    return


def train(args: argparse.Namespace, form: type[Plain] | type[Bare]) -> dict[str, float | bool]:
    """Learn; the clock runs when the first Adam is made, for that imports much."""
    loop = Loop(args, form)
    start = time.perf_counter()
    loop.advance(args.env_steps)
    seconds, returns = time.perf_counter() - start, loop.env.returns
    rates = {"updates_per_s": loop.updates / seconds, "steps_per_s": loop.step / seconds}
    mean = float(np.mean(returns)) if returns else 0.0
    counts = {"env_steps": loop.step, "updates": loop.updates, "seconds": seconds}
    return {**counts, **rates, "return": mean, "solved": loop.solved}


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env-steps", type=int, default=50_000)
    parser.add_argument("--stop-return", type=float, help="stop once the mean of the last 100 episodes reaches this")
    parser.add_argument("--bare", action="store_true", help="as fast as plain torch does it")
    parser.add_argument("--lr", type=float, default=2.3e-3)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--capacity", type=int, default=100_000)
    parser.add_argument("--learning-starts", type=int, default=1_000)
    parser.add_argument("--target-update", type=int, default=10, help="env steps between two copies")
    parser.add_argument("--train-freq", type=int, default=256, help="env steps between two blocks of updates")
    parser.add_argument("--gradient-steps", type=int, default=128, help="updates in a block")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(given)


if __name__ == "__main__":
    options = arguments()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    np.random.seed(options.seed)
    print(json.dumps(train(options, Bare if options.bare else Plain)))
