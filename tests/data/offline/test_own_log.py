"""The page's way from a log of one's own to a policy and an estimate, typed as it stands there."""

from __future__ import annotations

import csv
import json
import re
import shlex
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from lightning_rl.cli import main

PAGE = (Path(__file__).parents[3] / "docs" / "offline.md").read_text(encoding="utf-8")
NOT_PLAYED = (
    "env=none has the spaces of the data and cannot be played: name an environment with env=, or with --env of a verb"
)


def write_log(file: Path, episodes: int) -> float:
    """Episodes of a controller of CartPole with 30 % random pushes; their mean return."""
    env, generator, rows = gym.make("CartPole-v1"), np.random.default_rng(0), []
    for episode in range(episodes):
        obs, _ = env.reset(seed=episode)
        ended = False
        while not ended:
            push = int(generator.integers(2) if generator.random() < 0.3 else obs[2] + 0.3 * obs[3] > 0)
            following, reward, terminated, truncated, _ = env.step(push)
            rows.append([episode, *obs.tolist(), push, reward, int(terminated)])
            obs, ended = following, terminated or truncated
    with file.open("w", newline="") as opened:
        csv.writer(opened).writerows([["episode", "x", "v", "angle", "w", "push", "reward", "fell"], *rows])
    return len(rows) / episodes


def test_three_commands_lead_from_a_log_to_a_policy_and_an_estimate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The clone of a controller whose pushes are noisy is better than it, in an environment it never saw."""
    section = PAGE.split("## From a log of your own")[1].split("\n## ")[0]
    commands = re.findall(r"^lightning-rl (.*)$", re.findall(r"```bash\n(.*?)```", section, re.DOTALL)[0], re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    recorded = write_log(Path("log.csv"), 60)
    quick = {"train": ["total_env_steps=60_000", "logger=none"], "estimate": ["--fqe-steps=50", "--json"]}
    for command in commands:
        verb, *arguments = shlex.split(command)
        assert main([verb, *arguments, *quick.get(verb, [])]) == 0
        if verb == "train":
            assert " on log.csv, " in capsys.readouterr().out
    last = capsys.readouterr().out.strip().splitlines()[-1]
    assert json.loads(last)["estimates"]["dm"]["value"] > 0
    assert main(["evaluate", "runs/log", "--env", "CartPole-v1", "--episodes", "20", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["mean"] > recorded + 50
    assert main(["export", "runs/log", "--format", "torch.export"]) == 0
    assert "samples of the observation space" in capsys.readouterr().out
    assert main(["evaluate", "runs/log"]) == 2
    assert capsys.readouterr().err.splitlines()[-1:] == [f"error: {NOT_PLAYED}"]  # the only attempt
