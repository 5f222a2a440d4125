"""The verbs train, evaluate, resume, list, describe and benchmark."""

from __future__ import annotations

import importlib
import json
import os
import re
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from gymnasium.envs.registration import registry
from lightning_utilities.core.imports import RequirementCache

from lightning_rl.cli import VERBS
from lightning_rl.config import descriptions
from lightning_rl.errors import import_object
from lightning_rl.runs.evaluation import confidence_interval, student_t
from tests.callbacks.log_files import csv_rows
from tests.cli.conftest import Command
from tests.run_processes import Fork

SHORT = ("total_env_steps=600", "evaluation.episodes=2", "workers.fragment_length=32", "evaluation.every_env_steps=500")


def test_help_names_every_verb_and_its_arguments(command: Command, capfd: pytest.CaptureFixture[str]):
    outcome = command("--help")
    assert outcome.code == 0
    assert all(f"  {verb}" in outcome.out for verb in VERBS)
    with pytest.raises(SystemExit) as exit_:
        command("train", "--help")
    assert exit_.value.code == 0
    assert "--multirun" in capfd.readouterr().out


def test_list_names_choices_with_a_line_about_each(command: Command):
    outcome = command("list")
    assert outcome.code == 0
    for heading in ("policies", "envs", "experiments", "models", "explorations", "data", "metrics"):
        assert f"{heading}\n" in outcome.out
    found = json.loads(command("list", "envs", "--json").out)["envs"]
    assert found["lunarlander"] == "LunarLander-v3"
    others = ("atari", "custom", "pettingzoo")  # whose id is the user's
    ids = [line for name, line in found.items() if name not in others and not line.startswith("ALE/")]
    assert all(is_there(id) for id in ids)


def is_there(id: str) -> bool:
    """Whether an environment's id is registered, or is that of an object or a module that can be imported."""
    package, _, name = id.partition(":")
    if id in registry:
        return True
    if not name.isidentifier():
        importlib.import_module(package)
        return not name or name in registry
    return import_object(id) is not None


def test_describing_a_policy_shows_the_documentation_of_its_constructor(command: Command):
    outcome = command("describe", "policy=ppo").out
    assert outcome.startswith("lightning_rl.policies.ppo.PPO\nProximal policy optimisation")
    assert "gae_lambda = 0.95 (number between 0 and 1)\n      λ of generalised advantage estimation" in outcome
    assert (
        "gamma = 0.99 (number between 0 and 1)\n      discount per environment step" in outcome
    )  # documented by the base class
    assert "observation_space" not in outcome


@pytest.mark.parametrize(
    ("what", "holds"),
    [
        ("policy.lr", "learning rate: a number, `[[env_step, rate], …]`"),
        (
            "policy=ppo",
            "clip the gradients' global norm to this",
        ),  # PPO says "lr, max_grad_norm, keywords: of `Policy`"
        ("policy=rainbow", "keywords of the optimizer, such as `eps`; the paper's ε of Adam."),  # "as `Policy`; …"
        (
            "data.n_step",
            "is wrong.\n      by default: 3 (apex, multi_step, prioritized, q_learning), 1 (group_sequences, h",
        ),
        ("data.capacity", "over all ranks.\n      by default: 1_000_000 (apex), 100_000 (group_sequences"),
        ("workers.num_workers", "Ray processes"),
        ("stop.seconds", "wall time"),
        ("workers", "fragment_length: 128"),
        ("env=cartpole", "id: CartPole-v1"),
        ("env.wrappers", "import paths"),
        ("checkpoint.keep", "step_*.ckpt"),
        ("experiment=ppo_cartpole", "total_env_steps"),
        ("model.fcnet_hiddens", "fcnet_hiddens: [64, 64]"),
        ("train/approx_kl", "estimated KL"),
        ("train", "defaults:"),
    ],
)
def test_describe_explains_groups_choices_and_keys(what: str, holds: str, command: Command):
    outcome = command("describe", what)
    assert outcome.code == 0
    assert holds in outcome.out


def test_a_key_that_every_option_sets_alike_is_described_without_a_list_of_them(command: Command):
    assert "by default" not in command("describe", "policy.gamma").out


def test_cfg_prints_the_composed_config_and_trains_nothing(command: Command, tmp_path: Path):
    outcome = command("train", "policy=a2c", "--cfg", "seed=3")
    assert yaml.safe_load(outcome.out)["seed"] == 3
    assert list(tmp_path.iterdir()) == []


def test_cfg_of_a_sweep_prints_the_config_of_each_job_and_trains_nothing(command: Command, tmp_path: Path):
    outcome = command("train", "-m", "policy=a2c,dqn", "seed=3,4", "--cfg")
    jobs = list(yaml.safe_load_all(outcome.out))
    assert [(job["policy"]["_target_"].rpartition(".")[2], job["seed"]) for job in jobs] == [
        *(("A2C", 3), ("A2C", 4), ("DQN", 3), ("DQN", 4))
    ]
    assert "# 2: policy=dqn seed=3" in outcome.out
    assert [job["seed"] for job in yaml.safe_load_all(command("train", "seeds=1..2", "--cfg").out)] == [1, 2]
    assert list(tmp_path.iterdir()) == []


def test_a_warning_of_the_package_is_a_line_without_a_place_in_its_source(command: Command):
    outcome = command("train", "policy=ppo", "env=cartpole", "model=nature_cnn", "run_dir=out", *SHORT)
    assert outcome.code == 0
    (line,) = (line for line in outcome.err.splitlines() if "model.conv_filters" in line)
    assert line.startswith("warning: model.conv_filters and model.conv_residual_channels are for images, and the obs")


def test_train_leaves_a_run_directory_that_evaluate_and_resume_take(command: Command, tmp_path: Path):
    outcome = command("train", "env=cartpole", "run_dir=out", *SHORT)
    assert outcome.code == 0
    out = tmp_path / "out"
    status = json.loads((out / "status.json").read_text())
    assert (status["state"], status["error"]) == ("ok", None)
    assert status["env_steps"] >= 600
    assert yaml.safe_load((out / "config.yaml").read_text())["total_env_steps"] == 600
    files = {"config.yaml", "config.signature", "provenance.json", "metrics.csv", "status.json"}
    assert {path.name for path in out.iterdir()} == files | {"checkpoints", "tb"}
    assert (out / "checkpoints" / "last.ckpt").is_file()

    one = command("evaluate", "out", "--episodes", "1", "--json").out
    assert json.loads(one, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))["ci95"] is None
    assert "of one episode" in command("evaluate", "out", "--episodes", "1").out
    result = json.loads(command("evaluate", "out", "--episodes", "3", "--json", "--seed", "5").out)
    assert len(result["returns"]) == len(result["lengths"]) == result["episodes"] == 3
    assert result["ci95"][0] <= result["mean"] <= result["ci95"][1]
    assert json.loads(command("evaluate", "out", "--episodes", "3", "--json", "--seed", "5").out) == result
    assert (
        command("evaluate", "out", "--episodes", "3").out.splitlines()[1].startswith(f"return {result['mean']:.2f}"[:7])
    )

    other = command("evaluate", "out/checkpoints/last.ckpt", "--env", "Acrobot-v1")
    assert (other.code, other.err.count("\n")) == (2, 1)
    assert "observation_space" in other.err

    again = command("train", "env=cartpole", "run_dir=out", *SHORT)
    assert again.code == 2
    assert "`lightning-rl resume`" in again.err

    assert "give it more" in command("resume", "out").err
    refused = command("resume", "out", "policy.gamma=0.5")
    assert refused.code == 2
    assert refused.err.startswith(
        "error: policy.gamma=0.5 would make it another run; a resumed run can change total_env_"
    )

    out.rename(tmp_path / "elsewhere")  # a run may be moved
    assert command("resume", "elsewhere", "total_env_steps=1200").code == 0
    status = json.loads((tmp_path / "elsewhere" / "status.json").read_text())
    assert status["env_steps"] >= 1200
    steps = [int(row["env_steps"]) for row in csv_rows(tmp_path / "elsewhere" / "metrics.csv")]
    assert steps == sorted(set(steps))
    assert not out.exists()


def test_an_error_of_the_users_code_ends_with_1_and_leaves_its_traceback(command: Command, tmp_path: Path):
    (tmp_path / "broken_losses.py").write_text("def broken(policy, batch):\n    raise LookupError('a bug of mine')\n")
    outcome = command("train", "run_dir=out", "policy.custom_losses=[broken_losses:broken]", *SHORT)
    assert outcome.code == 1
    assert outcome.err.endswith("error: LookupError: a bug of mine\n")
    assert "in broken" in (tmp_path / "out" / "train.log").read_text()
    status = json.loads((tmp_path / "out" / "status.json").read_text())
    assert (status["state"], status["error"]) == ("failed", "LookupError: a bug of mine")


def test_a_loss_that_is_not_finite_stops_before_the_step(command: Command, tmp_path: Path):
    (tmp_path / "nan_losses.py").write_text(
        "def broken(policy, batch):\n    return batch.action_logp.mean() * float('nan')\n"
    )
    outcome = command("train", "run_dir=out", "policy.custom_losses=[nan_losses:broken]", *SHORT)
    assert outcome.code == 2
    assert outcome.err.splitlines()[-1].startswith("error: loss is nan (broken nan) in gradient step 0")
    assert json.loads((tmp_path / "out" / "status.json").read_text())["state"] == "failed"


def test_train_py_is_the_same_and_ctrl_c_leaves_a_checkpoint_to_resume(tmp_path: Path, command: Command):
    script = str(Path(__file__).parents[2] / "train.py")

    def train() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what runs in the background
        sys.argv = [script, "run_dir=out", "total_env_steps=100000000", "workers.fragment_length=32", "evaluation=none"]
        runpy.run_path(script, run_name="__main__")

    with Fork(train, tmp_path / "log.txt") as process:
        process.until(lambda: "/100,000,000 env steps" in process.text)
        os.kill(process.pid, signal.SIGINT)
        assert process.wait() == 130, process.text
    status = json.loads((tmp_path / "out" / "status.json").read_text())
    assert status["state"] == "interrupted"
    assert command("resume", "out", f"total_env_steps={status['env_steps'] + 500}").code == 0


def test_the_confidence_interval_is_students():
    """[1, 2, 3, 4, 5]: mean 3, deviation √2.5, t(4) = 2.776: half width 2.776 · √2.5 / √5 = 1.963."""
    low, high = confidence_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (low + high) / 2 == pytest.approx(3.0)
    assert (high - low) / 2 == pytest.approx(1.963, abs=2e-3)
    assert confidence_interval([1.0]) == (-float("inf"), float("inf"))


@pytest.mark.parametrize(("freedom", "quantile"), [(1, 12.706), (2, 4.303), (3, 3.182), (9, 2.262), (99, 1.984)])
def test_students_quantiles_are_those_of_the_tables(freedom: int, quantile: float):
    assert student_t(freedom) == pytest.approx(quantile, rel=2e-3)


def test_tables_put_numbers_to_the_right():
    rows = [{"job": "0", "return": 20.0}, {"job": "10", "return": None}]
    assert descriptions.table(rows) == "job  return\n0      20.0\n10        -"


def test_train_first_prints_a_line_that_describes_the_run(tmp_path: Path):
    """Before the imports that take seconds: torch and Lightning cannot be imported here."""
    for package in ("torch", "lightning"):
        (tmp_path / f"{package}.py").write_text("raise ImportError('not yet')")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])}
    command = [sys.executable, "-m", "lightning_rl", "train", "policy=dqn", "env=cartpole", "run_dir=here"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100)
    assert re.fullmatch(r"lightning_rl [\d.]+: DQN on CartPole-v1, [\d,]+ env steps → here\n", done.stdout)


def test_ctrl_c_before_training_leaves_a_word(command: Command, monkeypatch: pytest.MonkeyPatch):
    def interrupted(config: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib.import_module("lightning_rl.cli.train"), "check_config", interrupted)
    outcome = command("train", "policy=ppo", "env=cartpole")
    assert (outcome.code, outcome.err) == (130, "interrupted: ended at once, nothing was saved by this\n")


@pytest.mark.parametrize(("choice", "left"), [("csv", {"metrics.csv"}), ("tensorboard", {"tb"}), ("none", set())])
def test_a_logger_is_a_choice(choice: str, left: set[str], command: Command, tmp_path: Path):
    outcome = command("train", "policy=ppo", "env=cartpole", f"logger={choice}", "run_dir=run", *SHORT)
    assert outcome.code == 0, outcome.err
    assert {path.name for path in (tmp_path / "run").iterdir()} & {"metrics.csv", "tb", "wandb"} == left


def test_the_error_for_a_missing_logger_package_names_the_package(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("lightning.pytorch.loggers.wandb._WANDB_AVAILABLE", RequirementCache("wandb>=99999"))
    outcome = command("train", "policy=ppo", "env=cartpole", "logger=wandb", "run_dir=run", *SHORT)
    assert outcome.code == 2 and list(tmp_path.iterdir()) == []
    assert outcome.err.startswith("error: logger.wandb needs a package that is not installed:")
    assert "pip install" in outcome.err and outcome.err.count("\n") == 1


OWN_ENV = """
import gymnasium as gym


class Mine(gym.Wrapper):
    def __init__(self):
        super().__init__(gym.make("CartPole-v1"))
"""


def console(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`lightning-rl …` as the installed program runs it: its own directory is on the path, the working one is not."""
    program = folder / "bin" / "lightning-rl"
    program.parent.mkdir()
    program.write_text(
        "import sys\nfrom lightning_rl.cli import main\nif __name__ == '__main__':\n    sys.exit(main())\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, str(program), *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=200)


@pytest.mark.process
def test_the_program_finds_modules_of_the_working_directory(tmp_path: Path):
    """In the environments' processes too; and a file there does not take the place of an installed package."""
    (tmp_path / "my_envs.py").write_text(OWN_ENV)
    (tmp_path / "torch.py").write_text("raise RuntimeError('the wrong one')")
    how = ("workers.vectorization=async", "workers.envs_per_worker=2", *SHORT, "run_dir=run")
    done = console(tmp_path, "train", "env.id=my_envs:Mine", *how)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run" / "status.json").read_text())["state"] == "ok"


@pytest.mark.ray
@pytest.mark.parametrize("how", ["workers.num_workers=1", "trainer.devices=2"])
def test_worker_processes_and_ranks_find_them_too(tmp_path: Path, how: str):
    (tmp_path / "my_envs.py").write_text(OWN_ENV)
    done = console(tmp_path, "train", "env.id=my_envs:Mine", how, *SHORT, "run_dir=run")
    assert done.returncode == 0, done.stderr
