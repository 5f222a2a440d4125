"""`lightning-rl export`: a run's policies as files, from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lightning_rl import ScratchPolicy
from lightning_rl.deploy import load
from lightning_rl.envs import EnvCreator
from lightning_rl.rollouts.worker_options import EVALUATED_TOGETHER
from lightning_rl.rollouts.worker_set import WorkerSet
from tests.cli.conftest import Command, not_refused
from tests.trained_runs import train


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    evaluated = ("evaluation.every_env_steps=50%", "evaluation.episodes=1", "total_env_steps=600")
    run_dir = tmp_path_factory.mktemp("runs") / "ppo"
    return train(run_dir, "experiment=none", "policy=ppo", "env=cartpole", "policy.lr=1e-2", *evaluated)


class Deployed(ScratchPolicy):
    """Acts in workers with the exported file."""

    def compute_actions(self, obs: Any, state: Any = (), **unused: Any) -> Any:
        return list(self.config["policy"].act(obs)), [], {}


def test_a_deployed_policy_has_the_returns_of_evaluate_on_equal_seeds(
    run: Path, command: Command, tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime")
    done = command("export", str(run))
    assert done.code == 0, done.err
    assert f"PPO → {run}/export/policy.onnx" in done.out and "reads obs float32[batch, 4]" in done.out
    assert "checked against the policy on 5" in done.out and "observations of episodes in CartPole-v1" in done.out
    evaluated = json.loads(command("evaluate", str(run), "--episodes", "8", "--seed", "3", "--json").out)

    creator = EnvCreator("CartPole-v1")
    actor = Deployed(*creator.spaces(), {"policy": load(run / "export")})
    workers = WorkerSet(creator, actor, num_envs=min(8, EVALUATED_TOGETHER), seed=3, stream="evaluation", explore=False)
    returns = [ret for ret, _ in workers.run_episodes(8)]
    workers.stop()
    assert returns == evaluated["returns"] and len(set(returns)) > 1


@pytest.mark.parametrize(("format", "file"), [("torch.export", "policy.pt2"), ("torchscript", "policy.pt")])
def test_other_formats_and_directories(run: Path, command: Command, tmp_path: Path, format: str, file: str) -> None:
    done = command("export", str(run), "--format", format, "--out", "here", "--json", "--best")
    assert done.code == 0, done.err
    written = json.loads(done.out.splitlines()[0])
    assert written["format"] == format and written["env"] == "CartPole-v1" and "/best_" in written["checkpoint"]
    assert sorted(each.name for each in (tmp_path / "here").iterdir()) == ["policy.json", file]
    assert json.loads((tmp_path / "here" / "policy.json").read_text())["check"]["largest_difference"] <= 1e-5
    assert ("TorchScript is deprecated" in done.out) == (format == "torchscript")


def test_each_policy_of_several_agents_has_a_directory_of_its_own(command: Command, tmp_path: Path) -> None:
    policies = ("policies={left: {policy: ppo}, right: {policy: random}}", "env.agents=2")
    mapping = "policy_mapping={agent_0: left, agent_1: right}"
    run = train(tmp_path / "several", "policy=ppo", "env=multi_agent_cartpole", *policies, mapping)
    done = command("export", str(run), "--format", "torch.export")
    assert done.code == 0, done.err
    assert f"left (PPO) → {run}/export/left/policy.pt2" in done.out
    assert "right: not exported: RandomPolicy" in done.out
    assert [each.name for each in (run / "export").iterdir()] == ["left"]
    cases = {
        f"export {run} --policy-id {name}": words for name, words in (("right", "RandomPolicy"), ("lefft", "'left'"))
    }
    assert not_refused(command, cases) == {}


def test_a_mistake_is_one_line_and_writes_nothing(run: Path, command: Command, tmp_path: Path) -> None:
    (tmp_path / "afile").touch()
    cases = {
        "--format keras": "format='keras'; expected one of onnx, torchscript, torch.export",
        "--policy-id a": "there is no policy 'a'",
        "--env Pendulum-v1 --format torch.export": "its observation_space is not that of 'Pendulum-v1'",
        "--out afile/export": "/afile' is a file",
        "--seed -1": "--seed: '-1'; expected a whole number, at least 0",
        "--formt onnx": "see lightning-rl export --help",
    }
    written = {f"export {run} --out here {options}": words for options, words in cases.items()}
    assert not_refused(command, written) == {}
    assert not (tmp_path / "here").exists()
