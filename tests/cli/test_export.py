"""`lightning-rl export`: a run's policies as files, from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lightning_rl import ScratchPolicy, errors, trust
from lightning_rl.cli import main
from lightning_rl.deploy import load
from lightning_rl.envs import EnvCreator
from lightning_rl.rollouts.worker_options import EVALUATED_TOGETHER
from lightning_rl.rollouts.worker_set import WorkerSet
from tests.cli.conftest import Command

SMALL = (
    "model.fcnet_hiddens=[16]",
    "total_env_steps=600",
    "evaluation.episodes=1",
    "trainer.enable_progress_bar=false",
)


def train(run_dir: Path, *arguments: str) -> Path:
    assert main(["train", "experiment=none", f"run_dir={run_dir}", *SMALL, *arguments]) == 0
    return run_dir


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("runs") / "ppo", "policy=ppo", "env=cartpole", "policy.lr=1e-2")


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
    run = train(
        tmp_path / "several",
        "policy=ppo",
        "env=multi_agent_cartpole",
        "policies={left: {policy: ppo}, right: {policy: random}}",
        "policy_mapping={agent_0: left, agent_1: right}",
        "env.agents=2",
    )
    done = command("export", str(run), "--format", "torch.export")
    assert done.code == 0, done.err
    assert f"left (PPO) → {run}/export/left/policy.pt2" in done.out
    assert "right: not exported: RandomPolicy" in done.out
    assert [each.name for each in (run / "export").iterdir()] == ["left"]
    done = command("export", str(run), "--policy-id", "right")
    assert (done.code, done.out) == (2, "") and "error: RandomPolicy" in done.err
    done = command("export", str(run), "--policy-id", "lefft")
    assert done.code == 2 and "'left'" in done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--format", "keras"), "format='keras'; expected one of onnx, torchscript, torch.export"),
        (("--policy-id", "a"), "--policy-id a: the checkpoint holds one policy; leave it out"),
        (("--env", "Pendulum-v1", "--format", "torch.export"), "its observation_space is not that of 'Pendulum-v1'"),
        (("--out", "afile/export"), "afile/export cannot be a directory: "),
        (("--seed", "-1"), "--seed: '-1'; expected a whole number, at least 0"),
        (("--formt", "onnx"), "see lightning-rl export --help"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(
    run: Path, command: Command, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    (tmp_path / "afile").touch()
    done = command("export", str(run), "--out", "here", *arguments)
    assert done.code == 2 and message in done.err and len(done.err.splitlines()) == 1
    assert not (tmp_path / "here").exists()


def test_the_environment_of_a_run_is_not_imported_unless_it_is_trusted(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_carts.py").write_text("import gymnasium as gym\ndef make():\n    return gym.make('CartPole-v1')\n")
    run = train(tmp_path / "own", "policy=ppo", "env.id=my_carts:make")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))  # another user, and
    fresh = set[str]()  # a new process, in which no name was typed
    for module in (errors, trust):
        monkeypatch.setattr(module, "named_here", fresh)
    done = command("export", str(run), "--format", "torch.export")
    assert done.code == 2 and "not trusted" in done.err and not (run / "export").exists()
    assert command("export", str(run), "--format", "torch.export", "--trust", "my_carts").code == 0
