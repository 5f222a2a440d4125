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
from lightning_rl.intervals import confidence_interval, student_t
from tests.callbacks.log_files import csv_rows
from tests.cli.conftest import Command, not_refused
from tests.edited_runs import config_of, status_of
from tests.run_processes import Fork

SHORT = ("total_env_steps=600", "evaluation.episodes=2", "workers.fragment_length=32", "evaluation.every_env_steps=500")


def test_help_names_every_verb(command: Command):
    outcome = command("--help")
    assert outcome.code == 0 and all(f"  {verb}" in outcome.out for verb in VERBS)


def test_list_names_choices_with_a_line_about_each(command: Command):
    headings = ("policies", "envs", "experiments", "models", "explorations", "data", "metrics")
    listed = command("list").out
    assert all(f"{heading}\n" in listed for heading in headings)
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


DESCRIPTIONS = {
    "policy.lr": "learning rate: a number, `[[env_step, rate], …]`",
    "policy=rainbow": "such as `eps`; the default is the paper's ε of Adam.",  # "as `Policy`; …"
    "data.n_step": "γ instead.\n      by default: 3 (apex, multi_step, prioritized, q_learning), 1 (group_sequences, h",
    "data.capacity": "over all ranks.\n      by default: 1000000 (apex), 100000 (group_sequences",
    "workers.num_workers": "Ray processes",
    "stop.seconds": "wall-clock time",
    "workers": "fragment_length: 128",
    "env=cartpole": "id: CartPole-v1",
    "env.wrappers": "import paths",
    "checkpoint.keep": "step_*.ckpt",
    "experiment=ppo_cartpole": "total_env_steps",
    "model.fcnet_hiddens": "fcnet_hiddens: [64, 64]",
    "train/approx_kl": "estimated KL",
    "train": "defaults:",
}


def test_describe_explains_groups_choices_and_keys(command: Command):
    assert {what: words for what, words in DESCRIPTIONS.items() if words not in command("describe", what).out} == {}
    assert "by default" not in command("describe", "policy.gamma").out  # every option sets it alike


def test_describing_a_policy_shows_the_documentation_of_its_constructor(command: Command):
    shown = command("describe", "policy=ppo").out
    assert shown.startswith("lightning_rl.policies.ppo.PPO\nProximal policy optimization")
    assert "gae_lambda = 0.95 (number between 0 and 1)\n      λ of generalized advantage estimation" in shown
    # The base class documents these; PPO says "lr, max_grad_norm, keywords: arguments of `Policy`".
    assert "gamma = 0.99 (number between 0 and 1)\n      discount per environment step" in shown
    assert "clip the global norm of the gradients to this" in shown and "observation_space" not in shown


def test_a_class_of_the_user_s_is_described_by_its_import_path(command: Command, tmp_path: Path):
    (tmp_path / "described.py").write_text(
        "from lightning_rl import PPO\n\nclass Mine(PPO):\n    def __init__(self, *spaces, bonus: float = 0.5, **kw):\n"
        "        super().__init__(*spaces, **kw)\n"
    )
    shown = command("describe", "policy=described:Mine").out
    assert shown.startswith("described.Mine\n") and "bonus = 0.5 (number)" in shown and "clip = 0.2" in shown


def test_cfg_prints_the_composed_config_of_each_job_and_trains_nothing(command: Command, tmp_path: Path):
    assert yaml.safe_load(command("train", "policy=a2c", "--cfg", "seed=3").out)["seed"] == 3
    outcome = command("train", "-m", "policy=a2c,dqn", "seed=3,4", "--cfg")
    jobs = [(job["policy"]["_target_"].rpartition(".")[2], job["seed"]) for job in yaml.safe_load_all(outcome.out)]
    assert jobs == [("A2C", 3), ("A2C", 4), ("DQN", 3), ("DQN", 4)]
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
    status = status_of(out)
    assert (status["state"], status["error"], config_of(out)["total_env_steps"]) == ("ok", None, 600)
    assert status["env_steps"] >= 600
    files = {"config.yaml", "config.signature", "provenance.json", "metrics.csv", "status.json"}
    assert {path.name for path in out.iterdir()} == files | {"checkpoints", "tb"}
    assert (out / "checkpoints" / "last.ckpt").is_file()

    one = command("evaluate", "out", "--episodes", "1", "--json").out
    assert json.loads(one, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))["ci95"] is None
    assert "of one episode" in command("evaluate", "out", "--episodes", "1").out
    three = ("evaluate", "out", "--episodes", "3", "--seed", "5")
    result = json.loads(command(*three, "--json").out)
    assert len(result["returns"]) == len(result["lengths"]) == result["episodes"] == 3
    assert result["ci95"][0] <= result["mean"] <= result["ci95"][1]
    assert json.loads(command(*three, "--json").out) == result
    assert command(*three).out.splitlines()[1].startswith(f"return {result['mean']:.2f}")
    cases = {
        "evaluate out/checkpoints/last.ckpt --env Acrobot-v1": "observation_space",
        "train env=cartpole run_dir=out": "`lightning-rl resume`",
        "resume out": "give it more",
    }
    assert not_refused(command, cases) == {}

    out.rename(tmp_path / "elsewhere")  # a run may be moved
    assert command("resume", "elsewhere", "total_env_steps=1200").code == 0
    assert status_of(tmp_path / "elsewhere")["env_steps"] >= 1200
    steps = [int(row["env_steps"]) for row in csv_rows(tmp_path / "elsewhere" / "metrics.csv")]
    assert steps == sorted(set(steps))
    assert not out.exists()


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("raise LookupError('a bug of mine')", 1, "LookupError: a bug of mine"),
        ("return batch.action_logp.mean() * float('nan')", 2, "loss is nan (broken nan) in gradient step 0"),
    ],
    ids=["raises", "is nan"],
)
def test_a_loss_of_the_user_s_that_fails_ends_the_run(
    line: str, code: int, message: str, command: Command, tmp_path: Path
):
    """A bug leaves its traceback; a loss that is not finite stops before the step."""
    (tmp_path / f"losses_of_{code}.py").write_text(f"def broken(policy, batch):\n    {line}\n")
    outcome = command("train", "run_dir=out", f"policy.custom_losses=[losses_of_{code}:broken]", *SHORT)
    assert outcome.code == code and outcome.err.splitlines()[-1].startswith(f"error: {message}")
    status = status_of(tmp_path / "out")
    assert status["state"] == "failed" and message in status["error"]
    assert code == 2 or "in broken" in (tmp_path / "out" / "train.log").read_text()


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
    status = status_of(tmp_path / "out")
    assert status["state"] == "interrupted"
    assert command("resume", "out", f"total_env_steps={status['env_steps'] + 500}").code == 0


def test_the_confidence_interval_is_students():
    """[1, 2, 3, 4, 5]: mean 3, deviation √2.5, t(4) = 2.776: half width 2.776 · √2.5 / √5 = 1.963."""
    assert confidence_interval([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx((3 - 1.963, 3 + 1.963), abs=2e-3)
    assert confidence_interval([1.0]) == (-float("inf"), float("inf"))
    quantiles = {1: 12.706, 2: 4.303, 3: 3.182, 9: 2.262, 99: 1.984}  # as in the tables
    assert {freedom: student_t(freedom) for freedom in quantiles} == pytest.approx(quantiles, rel=2e-3)


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


@pytest.mark.parametrize(("choice", "left"), [("csv", {"metrics.csv"}), ("tensorboard", {"tb"}), ("none", set())])
def test_a_logger_is_a_choice(choice: str, left: set[str], command: Command, tmp_path: Path):
    outcome = command("train", "policy=ppo", "env=cartpole", f"logger={choice}", "run_dir=run", *SHORT)
    assert outcome.code == 0, outcome.err
    assert {path.name for path in (tmp_path / "run").iterdir()} & {"metrics.csv", "tb", "wandb"} == left


def test_the_error_for_a_missing_logger_package_names_the_package(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("lightning.pytorch.loggers.wandb._WANDB_AVAILABLE", RequirementCache("wandb>=99999"))
    refusal = command("train", "policy=ppo", "env=cartpole", "logger=wandb", "run_dir=run", *SHORT).refusal
    assert refusal.startswith("logger.wandb needs a package that is not installed:") and "pip install" in refusal
    assert list(tmp_path.iterdir()) == []


OWN_ENV = "import gymnasium as gym\n\n\ndef mine():\n    return gym.make('CartPole-v1')\n"


def console(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`lightning-rl …` as the installed program runs it: its own directory is on the path, the working one is not."""
    program = folder / "bin" / "lightning-rl"
    program.parent.mkdir()
    program.write_text("import sys\nfrom lightning_rl.cli import main\nif __name__ == '__main__': sys.exit(main())\n")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, str(program), *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=200)


@pytest.mark.process
def test_the_program_finds_modules_of_the_working_directory(tmp_path: Path):
    """In the environments' processes too; and a file there does not take the place of an installed package."""
    (tmp_path / "my_envs.py").write_text(OWN_ENV)
    (tmp_path / "torch.py").write_text("raise RuntimeError('the wrong one')")
    how = ("workers.vectorization=async", "workers.envs_per_worker=2", *SHORT, "run_dir=run")
    done = console(tmp_path, "train", "env.id=my_envs:mine", *how)
    assert done.returncode == 0, done.stderr
    assert status_of(tmp_path / "run")["state"] == "ok"


@pytest.mark.ray
@pytest.mark.parametrize("how", ["workers.num_workers=1", "trainer.devices=2"])
def test_worker_processes_and_ranks_find_them_too(tmp_path: Path, how: str):
    (tmp_path / "my_envs.py").write_text(OWN_ENV)
    done = console(tmp_path, "train", "env.id=my_envs:mine", how, *SHORT, "run_dir=run")
    assert done.returncode == 0, done.stderr
