"""Scenarios of `benchmark.py` for several agents: what the multi-agent path costs, and MAPPO against its peers."""

from __future__ import annotations

import argparse
from pathlib import Path

from sides import PEERS, loop

from lightning_rl.cli.benchmarks.cartpole import LEARNED
from lightning_rl.cli.benchmarks.sides import Learned, Side, alternate, ours, report

__all__ = ["MULTI_AGENT"]

NO_EVALUATION = ("evaluation.every_env_steps=0", "stop.return=null")
PPO_WORK = (
    "experiment=none",
    "policy.reward_filter=none",
    "policy.passes=20",
    "policy.minibatches=1",
    "model.fcnet_hiddens=[64,64]",
    "workers.envs_per_worker=8",
    "workers.fragment_length=32",
    "workers.vectorization=sync",
)
LBF_LEARNED = Learned(
    {400_000: 0.5}, "half of what `policy=ppo env=lbf` has by then (docs/results.md); after 30k env steps it is still 0"
)
AGENTS = (2, 5, 10, 20)
# EPyMARL's MAPPO: 10 episodes a batch, 4 epochs of one minibatch, a GRU of 128.
MAPPO_WORK = (
    "experiment=none",
    "policy.central_critic=true",
    "policy.passes=4",
    "policy.minibatches=1",
    "workers.envs_per_worker=10",
    "workers.fragment_length=50",
)
MEMORY = ("model=gru", "model.lstm_cell_size=128", "model.fcnet_hiddens=[128]", "model.max_seq_len=50")


def multi_agent(args: argparse.Namespace) -> dict[str, object]:
    """One agent through the multi-agent path against the ordinary one; then more agents that share a policy."""
    work = (*PPO_WORK, *NO_EVALUATION, f"total_env_steps={args.env_steps}")
    alone, among = ours("one agent", *work), ours("one of several", *work, "env.agents=1")
    few = (*PPO_WORK, *NO_EVALUATION, f"total_env_steps={args.env_steps // 4}", "policy.passes=1")
    sides = [ours(f"{count} agents", *few, f"env.agents={count}") for count in AGENTS]
    rounds = alternate([alone, among, *sides], args.repeats)
    for results in rounds:
        for count, side in zip(AGENTS, sides, strict=True):
            results[side.name]["return"] /= count  # a run reports the sum over its agents
    pairs = [(among.name, alone.name, "steps_per_s")]
    pairs += [(sides[0].name, side.name, "steps_per_s") for side in sides[1:]]
    return report("multi_agent", rounds, ("steps_per_s", "seconds"), pairs, LEARNED)


def mappo(args: argparse.Namespace) -> dict[str, object]:
    """MAPPO on level-based foraging: against the environment alone, and against EPyMARL where it is installed."""
    work = (*MAPPO_WORK, *NO_EVALUATION, f"total_env_steps={args.env_steps}")
    sides = [
        ours("ours", *work, env="lbf"),
        ours("ours, GRU", *work, *MEMORY, env="lbf"),
        loop("environment alone", "--env-steps", str(args.env_steps), program="lbf_alone"),
    ]
    rates = ("collecting_steps_per_s", "steps_per_s")
    pairs = [(side, "environment alone", rate) for side in ("ours", "ours, GRU") for rate in rates]
    python, source = args.venvs / "epymarl" / "bin" / "python", Path(args.venvs) / "epymarl_src"
    if python.exists() and source.exists():
        command = (str(python), str(PEERS / "epymarl.py"), f"--source={source}", "--env-steps", "12000")
        sides.append(Side("EPyMARL", command))
        pairs += [("ours", "EPyMARL", "steps_per_s"), ("ours, GRU", "EPyMARL", "steps_per_s")]
    rounds = alternate(sides, args.repeats)
    return report("mappo", rounds, (*rates, "seconds"), pairs, LBF_LEARNED, idle=["environment alone"])


MULTI_AGENT = {"multi_agent": multi_agent, "mappo": mappo}
