"""`resume` of edited run directories: files of another run or version are refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_rl import Algorithm, Policy
from lightning_rl.cli import main
from lightning_rl.policies import PPO
from lightning_rl.version import __version__
from tests.cli.conftest import Command, not_refused
from tests.edited_runs import config_of, edit_checkpoint, edit_config, last_checkpoint
from tests.families import first

SMALL = (
    *("policy=ppo", "env=cartpole", "experiment=none", "model.fcnet_hiddens=[4]", "logger=csv"),
    *("workers.envs_per_worker=2", "workers.fragment_length=16", "policy.minibatches=2", "policy.passes=1"),
    *("total_env_steps=64", "evaluation.every_env_steps=50%", "evaluation.episodes=1", "checkpoint.every_env_steps=32"),
)
LONGER = "total_env_steps=96"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("trained") / "run"
    assert main(["train", *SMALL, "trainer.enable_progress_bar=false", f"run_dir={run_dir}"]) == 0
    return run_dir


@pytest.fixture
def run_dir(trained: Path, tmp_path: Path) -> Path:
    """A copy of the run, which may be spoilt."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


def assert_refused_in_one_line(run_dir: Path, command: Command, message: str) -> None:
    """Resuming ends with one error, which names the checkpoint."""
    outcome = command("resume", str(run_dir), LONGER)
    assert outcome.code == 2 and "Traceback" not in outcome.err, outcome.err
    (error,) = [line for line in outcome.err.splitlines() if line.startswith("error:")]
    assert message in error and str(run_dir / "checkpoints" / "last.ckpt") in error


@pytest.mark.parametrize(
    ("key", "value", "before"),
    [
        ("policy.gamma", 0.5, "0.99"),
        ("seed", 7, "0"),
        ("policy.gae_lambda", 0.5, "0.95"),
        ("workers.envs_per_worker", 4, "2"),
        ("workers.fragment_length", 32, "16"),
        ("env.id", "Acrobot-v1", "'CartPole-v1'"),
        ("policy.optimizer", "sgd", "'adam'"),
    ],
)
def test_an_edited_config_is_refused_by_key(key: str, value: Any, before: str, run_dir: Path, command: Command) -> None:
    edit_config(run_dir, key, value)
    outcome = command("resume", str(run_dir), LONGER)
    assert outcome.out == f"lightning_rl {__version__}: resume {run_dir}\n"
    assert f"{key}={value!r} (checkpoint: {before})" in outcome.refusal and "--force" in outcome.refusal


def test_force_takes_the_edited_config(run_dir: Path, command: Command) -> None:
    edit_config(run_dir, "policy.gamma", 0.5)
    outcome = command("resume", str(run_dir), LONGER, "--force")
    assert outcome.code == 0 and "policy.gamma=0.5 (checkpoint: 0.99)" in outcome.out


def test_keys_of_where_a_run_is_computed_may_be_edited_and_are_reported(run_dir: Path, command: Command) -> None:
    edit_config(run_dir, "trainer.enable_progress_bar", None)
    edit_config(run_dir, "checkpoint.keep", 1)
    outcome = command("resume", str(run_dir), LONGER)
    assert outcome.code == 0
    (line,) = [line for line in outcome.out.splitlines() if "differs from the checkpoint" in line]
    assert "checkpoint.keep=1 (checkpoint: " in line and "trainer.enable_progress_bar=None" in line
    assert "total_env_steps" not in line, "typed just now"


def test_keys_of_where_a_run_is_computed_may_be_typed(run_dir: Path, command: Command) -> None:
    """Also one that the run did not set, and the choice of a group; metrics.csv is written no further."""
    rows = (run_dir / "metrics.csv").read_text()
    typed = ("trainer.enable_progress_bar=true", "trainer.detect_anomaly=true", "logger=none")
    outcome = command("resume", str(run_dir), LONGER, *typed)
    assert outcome.code == 0, outcome.err
    config = config_of(run_dir)
    assert config["trainer"]["enable_progress_bar"] is config["trainer"]["detect_anomaly"] is True
    assert config["logger"] == {} and (run_dir / "metrics.csv").read_text() == rows


def test_the_first_line_comes_before_torch_is_imported(run_dir: Path) -> None:
    code = (
        "import builtins, sys\n"
        "show = print\n"
        "builtins.print = lambda *words, **_: (show(*words, 'torch' in sys.modules), sys.exit())\n"
        "from lightning_rl.cli import main\n"
        "main(sys.argv[1:])\n"
    )
    for arguments, line in (
        (("resume", str(run_dir), LONGER), f"resume {run_dir}"),
        (("evaluate", str(run_dir), "--episodes", "7"), f"7 episodes with {run_dir}"),
    ):
        program = [sys.executable, "-c", code, *arguments]
        shown = subprocess.run(program, capture_output=True, text=True, timeout=100).stdout
        assert shown == f"lightning_rl {__version__}: {line} False\n"


def test_a_checkpoint_of_another_run_is_refused_unless_it_is_forced(
    trained: Path, run_dir: Path, command: Command
) -> None:
    other = str(trained / "checkpoints" / "last.ckpt")
    again = ("resume", str(run_dir), LONGER, "--checkpoint", other)
    assert command(*again).refusal.startswith(f"--checkpoint {other} is not a file of {run_dir}/checkpoints")
    assert command(*again, "--force").code == 0


def test_a_missing_checkpoint_is_reported(run_dir: Path, command: Command) -> None:
    wrong = {f"resume {run_dir} {LONGER} --checkpoint no.ckpt": "checkpoint no.ckpt does not exist"}
    assert not_refused(command, wrong) == {}
    shutil.rmtree(run_dir / "checkpoints")
    assert not_refused(command, {f"resume {run_dir} {LONGER}": f"{run_dir} has no checkpoint to continue from"}) == {}


def test_a_link_to_a_run_is_the_run(run_dir: Path, tmp_path: Path, command: Command) -> None:
    (tmp_path / "link").symlink_to(run_dir)
    last = str(run_dir / "checkpoints" / "last.ckpt")
    assert command("resume", str(tmp_path / "link"), LONGER, "--checkpoint", last).code == 0


def test_the_error_for_a_damaged_last_checkpoint_names_an_undamaged_one(run_dir: Path, command: Command) -> None:
    last = run_dir / "checkpoints" / "last.ckpt"
    content = bytearray(last.read_bytes())
    last.unlink()  # step files are other names of the same file
    content[len(content) // 2] ^= 255
    last.write_bytes(content)
    whole = next((run_dir / "checkpoints").glob("step_*.ckpt"))
    for arguments in (("evaluate", str(run_dir)), ("resume", str(run_dir), LONGER)):
        outcome = command(*arguments)
        assert outcome.code == 2 and all(words in outcome.err for words in (str(last), whole.name, "give "))
    assert command("resume", str(run_dir), LONGER, "--checkpoint", str(whole)).code == 0


LOOPS = {"fit_loop": {"state_dict": {}, "epoch_progress": 3}}
ONE_MOMENT = [{"state": {0: {"exp_avg": torch.ones(3)}}, "param_groups": []}]
OF_METRICS, OF_EPISODES = "callbacks.MetricsCallback", "RolloutDataModule.episode_window"
ADAM, GROUP = "optimizer_states.0.state.0", "optimizer_states.0.param_groups.0"
BEST = {"best_000000032_9.00.ckpt": "x"}


@pytest.mark.parametrize(
    ("entry", "value", "message"),
    first(
        10,
        [
            ("loops", LOOPS, "cannot be restored"),
            ("optimizer_states", [], "holds no state of an optimizer"),
            ("optimizer_states", ONE_MOMENT, "has 0 parameter groups, and not 1"),
            ("counters", ..., "holds no policy"),
            ("counters", {}, "was not written by lightning_rl"),
            ("lightning_rl", {"version": "9.9.9", "schema": 9}, "written by lightning_rl 9.9.9 with schema 9"),
            ("callbacks.RLCheckpoint.best", BEST, "cannot be restored"),
            (f"{OF_METRICS}.latest", {"time/fps": "abc"}, "cannot be restored"),
            (f"{OF_METRICS}.best", {"eval/ep_rew_mean": []}, "cannot be restored"),
            (f"{OF_METRICS}.row", {"time/fps": None}, "cannot be restored"),
            (f"{OF_METRICS}.sums", {"time/learn_s": [1.0, "x"]}, "cannot be restored"),
            (f"{OF_EPISODES}.returns", ["x"], "cannot be restored"),
            ("counters.env_steps", 10**30, f"counters.env_steps={10**30}"),
            ("counters.iterations", -1, "counters.iterations=-1"),
            (f"{GROUP}.betas", "xy", "betas='xy'"),
            (f"{GROUP}.lr", "x", "lr='x'"),
            (f"{ADAM}.exp_avg", torch.tensor(0.0), "exp_avg of shape []"),
            (f"{ADAM}.step", torch.zeros(0), "step of shape [0]"),
            (ADAM, {"step": torch.tensor(1.0)}, "lacks exp_avg and exp_avg_sq of parameter 0"),
            ("loops", "stranger", "cannot be restored"),
            ("optimizer_states", [{}], "cannot be restored"),
            ("optimizer_states", ..., "cannot be restored"),
            ("callbacks", ["stranger"], "cannot be restored"),
            ("RolloutDataModule", {}, "cannot be restored"),
            ("RolloutDataModule", {"episode_window": 1}, "cannot be restored"),
            ("counters", {"env_steps": "many"}, "was not written by lightning_rl"),
            ("counters", {"env_steps": 64}, "cannot be restored"),
            ("policy", {"class": "stranger:Evil"}, "the checkpoint holds a stranger:Evil"),
            ("policy", "stranger", "cannot be restored"),
            ("state_dict", {}, "do not fit this model"),
            ("state_dict", 3, "cannot be restored"),
            ("lightning_rl", "9.9.9", "reads schema 2"),
        ],
    ),
    ids=lambda part: str(part)[:40],
)
def test_an_edited_entry_of_a_checkpoint_is_refused_in_one_line(
    entry: str, value: Any, message: str, run_dir: Path, command: Command
) -> None:
    edit_checkpoint(run_dir, entry, value)
    assert_refused_in_one_line(run_dir, command, message)


def test_a_checkpoint_names_the_version_that_wrote_it(run_dir: Path) -> None:
    content = last_checkpoint(run_dir)
    assert content["lightning_rl"] == {"version": "0.1.0", "schema": 2}
    assert content["config"]["total_env_steps"] == 64


def test_a_checkpoint_of_the_time_before_the_field_goes_on(run_dir: Path, command: Command) -> None:
    for field in ("lightning_rl", "config"):
        edit_checkpoint(run_dir, field, ...)
    assert isinstance(Policy.load(run_dir / "checkpoints" / "last.ckpt"), PPO)
    assert command("resume", str(run_dir), LONGER).code == 0


def test_algorithm_restores_a_run(run_dir: Path) -> None:
    algorithm, saved = Algorithm.restore(run_dir / "checkpoints" / "last.ckpt"), last_checkpoint(run_dir)["counters"]
    assert algorithm.policy.env_steps == saved["env_steps"] < algorithm.train()["env_steps"]
    algorithm.stop()


HOSTILE = '{"state": "ok", "env_steps": {"_target_": "os.system"}}'


def test_an_invalid_status_file_is_refused_in_one_line(run_dir: Path, command: Command) -> None:
    broken = ("", "{", "[]", "[" * 10**5, "\x00")
    for content in (*broken, '{"state": "ok", "env_steps": "many"}', '{"state": ["ok"], "env_steps": 1}', HOSTILE):
        (run_dir / "status.json").write_text(content)
        assert not_refused(command, {f"resume {run_dir} {LONGER}": "status.json is damaged"}) == {}, content[:30]
        listed = json.loads(command("list", "runs", str(run_dir.parent), "--json").out)["runs"]
        assert [row["state"] for row in listed] == ["damaged"]


@pytest.mark.parametrize(
    "content",
    ["", "env_steps\n=cmd|' /C calc'!A0\n", "\x00\x01\n", f"env_steps,a\n32,{'9' * 200_000}\n", '"' * 99, "a,b\n" * 3],
    ids=lambda content: repr(content[:30]),
)
def test_resume_with_a_damaged_metrics_file_runs_no_code_and_raises_no_traceback(
    content: str, run_dir: Path, command: Command
) -> None:
    """The run goes on, or one line names the file."""
    (run_dir / "metrics.csv").write_text(content)
    outcome = command("resume", str(run_dir), LONGER)
    assert "Traceback" not in outcome.err
    assert outcome.code == 0 or (outcome.code == 2 and "metrics.csv" in outcome.err)
