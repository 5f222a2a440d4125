"""`resume` of edited run directories: files of another run or version are refused."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from lightning_rl import Algorithm, Policy
from lightning_rl.checkpoint_files import newest_whole
from lightning_rl.cli import main
from lightning_rl.policies import PPO
from lightning_rl.runs.run import changed_workers, resumed_config
from lightning_rl.version import __version__
from tests.cli.conftest import Command
from tests.families import first

SMALL = (
    *(
        "policy=ppo",
        "env=cartpole",
        "experiment=none",
        "model.fcnet_hiddens=[4]",
        "logger=csv",
        "evaluation.episodes=1",
    ),
    *("workers.envs_per_worker=2", "workers.fragment_length=16", "policy.minibatches=2", "policy.passes=1"),
    *(
        "total_env_steps=64",
        "evaluation.every_env_steps=50%",
        "checkpoint.every_env_steps=32",
        "trainer.enable_progress_bar=false",
    ),
)
LONGER = "total_env_steps=96"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("trained") / "run"
    assert main(["train", *SMALL, f"run_dir={run_dir}"]) == 0
    return run_dir


@pytest.fixture
def run_dir(trained: Path, tmp_path: Path) -> Path:
    """A copy of the run, which may be spoilt."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


def edit_config(run_dir: Path, key: str, value: Any) -> None:
    file = run_dir / "config.yaml"
    config = yaml.safe_load(file.read_text())
    *path, name = key.split(".")
    inner = config
    for part in path:
        inner = inner[part]
    inner[name] = value
    file.write_text(yaml.safe_dump(config, explicit_end=True))


def edit_checkpoint(run_dir: Path, **parts: Any) -> None:
    """Replace parts of last.ckpt; `...` deletes one."""
    file = run_dir / "checkpoints" / "last.ckpt"
    content = copy.deepcopy(torch.load(file, weights_only=True))
    for name, value in parts.items():
        name = {"lightning_version": "pytorch-lightning_version"}.get(name, name)
        if value is ...:
            del content[name]
        else:
            content[name] = value
    torch.save(content, file)


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
    assert outcome.code == 2 and outcome.out == f"lightning_rl {__version__}: resume {run_dir}\n"
    assert outcome.err.count("\n") == 1
    assert f"{key}={value!r} (checkpoint: {before})" in outcome.err and "--force" in outcome.err


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
    config = yaml.safe_load((run_dir / "config.yaml").read_text())
    assert config["trainer"]["enable_progress_bar"] is config["trainer"]["detect_anomaly"] is True
    assert config["logger"] == {} and (run_dir / "metrics.csv").read_text() == rows


def test_the_number_of_processes_may_be_typed_and_a_changed_number_of_workers_is_noted(run_dir: Path) -> None:
    """Without `workers.logical_workers` there is one worker per process: 1 of `num_workers=0`, 2 of 2."""
    config = resumed_config(run_dir, {"total_env_steps": 96, "workers.num_workers": 2})
    assert config["workers"]["num_workers"] == 2
    before = yaml.safe_load((run_dir / "config.yaml").read_text())
    (line,) = changed_workers(before, config)
    assert line.startswith("2 workers act instead of 1 ")
    assert changed_workers(before, {**config, "workers": {**config["workers"], "num_workers": 1}}) == []


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("logger=cvs", "logger=cvs: no such logger. Did you mean 'csv'?"),
        ("trainer.acelerator=cpu", "no key 'trainer.acelerator'. Did you mean 'trainer.accelerator'?"),
        ("run_dir=other", "would make it another run"),
    ],
)
def test_what_cannot_be_changed_is_refused(typed: str, words: str, run_dir: Path, command: Command) -> None:
    outcome = command("resume", str(run_dir), LONGER, typed)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1) and words in outcome.err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("resume", "RUN", LONGER), "resume RUN"),
        (("evaluate", "RUN", "--episodes", "7"), "7 episodes with RUN"),
    ],
)
def test_the_first_line_comes_before_torch_is_imported(arguments: tuple[str, ...], line: str, run_dir: Path) -> None:
    code = (
        "import builtins, sys\n"
        "show = print\n"
        "builtins.print = lambda *words, **_: (show(*words, 'torch' in sys.modules), sys.exit())\n"
        "from lightning_rl.cli import main\n"
        f"main({[each.replace('RUN', str(run_dir)) for each in arguments]})\n"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100).stdout
    assert shown == f"lightning_rl {__version__}: {line.replace('RUN', str(run_dir))} False\n"


def test_force_takes_the_edited_config(run_dir: Path, command: Command) -> None:
    edit_config(run_dir, "policy.gamma", 0.5)
    outcome = command("resume", str(run_dir), LONGER, "--force")
    assert outcome.code == 0 and "policy.gamma=0.5 (checkpoint: 0.99)" in outcome.out


def test_a_checkpoint_of_another_run_is_refused_unless_it_is_forced(
    trained: Path, run_dir: Path, command: Command
) -> None:
    other = str(trained / "checkpoints" / "last.ckpt")
    outcome = command("resume", str(run_dir), LONGER, "--checkpoint", other)
    assert outcome.code == 2 and outcome.err.startswith(
        f"error: --checkpoint {other} is no file of {run_dir}/checkpoints"
    )
    assert command("resume", str(run_dir), LONGER, "--checkpoint", other, "--force").code == 0


def test_a_missing_checkpoint_is_reported_before_the_length_of_the_run(run_dir: Path, command: Command) -> None:
    """The run has all its env steps, so that it would also need more of them."""
    outcome = command("resume", str(run_dir), "--checkpoint", "nowhere.ckpt")
    assert outcome.code == 2 and outcome.err.startswith("error: checkpoint nowhere.ckpt does not exist")
    for file in (run_dir / "checkpoints").iterdir():
        file.unlink()
    outcome = command("resume", str(run_dir))
    assert outcome.code == 2 and outcome.err.startswith(f"error: {run_dir} has no checkpoint to go on from")


def test_a_link_to_a_run_is_the_run(run_dir: Path, tmp_path: Path, command: Command) -> None:
    (tmp_path / "link").symlink_to(run_dir)
    last = str(run_dir / "checkpoints" / "last.ckpt")
    assert command("resume", str(tmp_path / "link"), LONGER, "--checkpoint", last).code == 0


@pytest.mark.parametrize("verb", ["resume", "evaluate"])
def test_the_error_for_a_damaged_last_checkpoint_names_an_undamaged_one(
    verb: str, run_dir: Path, command: Command
) -> None:
    last = run_dir / "checkpoints" / "last.ckpt"
    content = bytearray(last.read_bytes())
    last.unlink()  # step files are other names of the same file
    content[len(content) // 2] ^= 255
    last.write_bytes(content)
    whole = newest_whole(run_dir / "checkpoints")
    outcome = command(verb, str(run_dir), *([LONGER] if verb == "resume" else []))
    assert outcome.code == 2 and str(last) in outcome.err
    assert str(whole) in outcome.err and "give " in outcome.err
    if verb == "resume":
        assert command("resume", str(run_dir), LONGER, "--checkpoint", str(whole)).code == 0


@pytest.mark.parametrize(
    ("parts", "message"),
    first(
        6,
        [
            ({"loops": {"fit_loop": {"state_dict": {}, "epoch_progress": 3}}}, "cannot be restored"),
            ({"loops": "stranger"}, "cannot be restored"),
            ({"optimizer_states": [{}]}, "cannot be restored"),
            ({"optimizer_states": ...}, "cannot be restored"),
            ({"optimizer_states": []}, "holds no state of an optimizer"),
            (
                {"optimizer_states": [{"state": {0: {"exp_avg": torch.ones(3)}}, "param_groups": []}]},
                "exp_avg of shape [3]; expected",
            ),
            ({"callbacks": ["stranger"]}, "cannot be restored"),
            ({"RolloutDataModule": {}}, "cannot be restored"),
            ({"RolloutDataModule": {"episode_window": 1}}, "cannot be restored"),
            ({"counters": ...}, "holds no policy"),
            ({"counters": {}}, "is damaged: its counters.env_steps is None; expected a whole number"),
            ({"counters": {"env_steps": "many"}}, "is damaged: its counters.env_steps is 'many'"),
            ({"counters": {"env_steps": 64}}, "cannot be restored"),
            ({"policy": {"class": "stranger:Evil"}}, "the checkpoint holds a stranger:Evil"),
            ({"policy": "stranger"}, "cannot be restored"),
            ({"state_dict": {}}, "do not fit this model"),
            ({"state_dict": 3}, "cannot be restored"),
            ({"lightning_rl": {"version": "9.9.9", "schema": 9}}, "written by lightning_rl 9.9.9 with schema 9"),
            ({"lightning_rl": "9.9.9"}, "has schema None"),
            ({"lightning_version": "1.0.0"}, "was written with Lightning 1.0.0"),
            ({"lightning_version": "9.9.9"}, "was written with Lightning 9.9.9"),
        ],
    ),
    ids=lambda part: str(part)[:40],
)
def test_an_edited_checkpoint_is_refused_in_one_line(
    parts: dict[str, Any], message: str, run_dir: Path, command: Command
) -> None:
    edit_checkpoint(run_dir, **parts)
    refused = command("resume", str(run_dir), LONGER)
    assert refused.code == 2, refused.err
    errors = [line for line in refused.err.splitlines() if line.startswith("error:")]
    assert len(errors) == 1 and message in errors[0] and "Traceback" not in refused.err
    assert "last.ckpt" in errors[0]


@pytest.mark.parametrize(
    ("entry", "value", "message"),
    first(
        4,
        [
            (
                "callbacks.RLCheckpoint.best",
                {"best_000000032_9.00.ckpt": "x"},
                "RLCheckpoint.best['best_000000032_9.00.",
            ),
            ("callbacks.MetricsCallback.latest", {"time/fps": "abc"}, "MetricsCallback.latest['time/fps']='abc'"),
            ("callbacks.MetricsCallback.best", {"eval/ep_rew_mean": []}, "MetricsCallback.best['eval/ep_rew_mean']=[]"),
            ("callbacks.MetricsCallback.row", {"time/fps": None}, "MetricsCallback.row['time/fps']=None"),
            (
                "callbacks.MetricsCallback.sums",
                {"time/learn_s": [1.0, "x"]},
                "MetricsCallback.sums['time/learn_s']='x'",
            ),
            ("callbacks.MetricsCallback.evaluated_at", -1, "MetricsCallback.evaluated_at=-1"),
            ("RolloutDataModule.episode_window.returns", ["x"], "episode_window.returns='x'"),
            ("RolloutDataModule.episode_window.episodes_total", 1.5, "episode_window.episodes_total=1.5"),
            ("counters.env_steps", 10**30, f"counters.env_steps={10**30}"),
            ("counters.iterations", -1, "counters.iterations=-1"),
            ("optimizer_states.0.param_groups.0.betas", "xy", "betas='xy'"),
            ("optimizer_states.0.param_groups.0.lr", "x", "lr='x'"),
            ("optimizer_states.0.state.0.exp_avg", torch.tensor(0.0), "exp_avg of shape []"),
            ("optimizer_states.0.state.0.step", torch.zeros(0), "step of shape [0]"),
            ("optimizer_states.0.state.0", {"step": torch.tensor(1.0)}, "lacks exp_avg and exp_avg_sq of parameter 0"),
        ],
    ),
    ids=str,
)
def test_an_edited_entry_of_a_checkpoint_is_named(
    entry: str, value: Any, message: str, run_dir: Path, command: Command
) -> None:
    file = run_dir / "checkpoints" / "last.ckpt"
    content: Any = copy.deepcopy(torch.load(file, weights_only=True))
    *path, name = [int(part) if part.isdigit() else part for part in entry.split(".")]
    inner = content
    for part in path:
        inner = inner[part]
    assert name in inner
    inner[name] = value
    torch.save(content, file)
    refused = command("resume", str(run_dir), LONGER)
    errors = [line for line in refused.err.splitlines() if line.startswith("error:")]
    assert refused.code == 2 and len(errors) == 1 and "Traceback" not in refused.err, refused.err
    assert str(file) in errors[0] and message in errors[0]


def test_a_checkpoint_names_the_version_that_wrote_it(run_dir: Path) -> None:
    content = torch.load(run_dir / "checkpoints" / "last.ckpt", weights_only=True)
    assert content["lightning_rl"] == {"version": "0.1.0", "schema": 1}
    assert content["config"]["total_env_steps"] == 64


def test_a_checkpoint_of_the_time_before_the_field_goes_on(run_dir: Path, command: Command) -> None:
    edit_checkpoint(run_dir, lightning_rl=..., config=...)
    assert isinstance(Policy.load(run_dir / "checkpoints" / "last.ckpt"), PPO)
    assert command("resume", str(run_dir), LONGER).code == 0


def test_algorithm_restores_a_run(run_dir: Path) -> None:
    algorithm = Algorithm.restore(run_dir / "checkpoints" / "last.ckpt")
    saved = torch.load(run_dir / "checkpoints" / "last.ckpt", weights_only=True)["counters"]["env_steps"]
    assert algorithm.policy.env_steps == saved
    assert algorithm.train()["env_steps"] > saved
    algorithm.stop()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"state": "ok", "env_steps": "many"}',
        '{"state": ["ok"], "env_steps": 1}',
        '{"state": "ok", "env_steps": {"_target_": "os.system"}}',
        "[" * 10**5,
        "\x00",
    ],
    ids=lambda content: content[:30],
)
def test_an_invalid_status_file_is_refused_in_one_line(content: str, run_dir: Path, command: Command) -> None:
    (run_dir / "status.json").write_text(content)
    outcome = command("resume", str(run_dir), LONGER)
    assert outcome.code == 2 and outcome.err.count("\n") == 1 and "status.json is damaged" in outcome.err


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


def test_the_metrics_of_a_sweep_with_a_hostile_status_are_read_as_data(run_dir: Path, command: Command) -> None:
    (run_dir / "status.json").write_text(json.dumps({"state": "ok", "env_steps": {"_target_": "os.system"}}))
    outcome = command("list", "runs", str(run_dir.parent))
    assert outcome.code in (0, 2) and "Traceback" not in outcome.err
