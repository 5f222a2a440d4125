"""The returns of the last and the best policy that a run reports, and which checkpoint a command takes."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml

from lightning_rl.cli.train import report_outcome, start_line
from lightning_rl.config import compose_config
from lightning_rl.config.descriptions import first_few, outcome
from lightning_rl.errors import CheckpointError, ConfigError
from lightning_rl.policies import Policy
from lightning_rl.run_directory.checkpoints import checkpoint_of
from lightning_rl.run_directory.status import FIELDS
from tests.callbacks.log_files import csv_rows
from tests.cli.conftest import Command, not_refused
from tests.edited_runs import edit_config, status_of

SHORT = ("env=cartpole", "experiment=none", "total_env_steps=600", "workers.fragment_length=32")
WHOLE = ("evaluation.every_env_steps=200", "evaluation.episodes=2", "evaluation.max_share=null")


def test_the_end_of_a_run_reports_last_and_best_and_both_can_be_evaluated(command: Command, tmp_path: Path):
    report = command("train", "run_dir=out", *SHORT, *WHOLE)
    status = status_of(tmp_path / "out")
    best, checkpoints = status["best_checkpoint"], tmp_path / "out" / "checkpoints"
    assert status["evaluated_at"] == status["env_steps"]
    last, count = report.out.splitlines()[-2:]
    assert last == (
        f"  evaluated return of the last policy: {status['evaluation']:.1f}; "
        f"best: {best['value']:.1f}, {best['file']} (lightning-rl evaluate out --best)"
    )
    assert count.startswith(f"  {status['evaluations']['done']} evaluation")
    values = {path: float(path.stem.rpartition("_")[2]) for path in checkpoints.glob("best_*.ckpt")}
    assert len(values) >= 2 and best["value"] == max(values.values())

    result = json.loads(command("evaluate", "out", "--best", "--episodes", "2", "--json").out)
    assert result["checkpoint"] == f"out/{best['file']}"
    assert command("evaluate", f"out/{best['file']}", "--best").refusal
    resumed = command("resume", "out", "--best", "total_env_steps=900")
    assert resumed.code == 0 and f"resuming out/{best['file']}" in resumed.out

    (checkpoints / "last.ckpt").write_bytes(b"half a file")
    for verb in (("evaluate", "out"), ("resume", "out", "total_env_steps=2000")):
        refusal = command(*verb).err.splitlines()[-1]
        assert all(path.name in refusal for path in checkpoints.glob("*.ckpt")) and refusal.endswith("(or --best)")


def test_evaluate_cuts_episodes_where_the_evaluations_of_the_run_did(command: Command, tmp_path: Path):
    pendulum = ("policy=ppo", "env=pendulum", *SHORT[1:], *WHOLE)
    assert command("train", *pendulum, "run_dir=out", "evaluation.max_episode_steps=20").code == 0

    def lengths(*arguments: str) -> list[int]:
        return json.loads(command("evaluate", "out", "--episodes", "2", "--json", *arguments).out)["lengths"]

    assert lengths() == [20, 20]
    assert lengths("--episodes", "18") == [20] * 18  # more than are played at a time
    assert lengths("--max-steps", "300") == [200, 200]
    edit_config(tmp_path / "out", "evaluation.max_episode_steps", None)
    assert lengths() == [200, 200]
    edit_config(tmp_path / "out", "evaluation.max_episode_steps", "soon")
    assert "evaluation.max_episode_steps='soon'" in command("evaluate", "out").refusal


def test_a_run_without_evaluation_reports_its_training_episodes(command: Command, tmp_path: Path):
    report = command("train", "run_dir=out", *SHORT, "evaluation=none")
    status = status_of(tmp_path / "out")
    assert report.out.splitlines()[-1] == (
        f"  mean return of the latest training episodes (100 at most): {status['return']:.1f}, at best "
        f"{status['best_return']:.1f}; nothing was evaluated"
    )
    for verb, how in (("evaluate", "its path"), ("resume", "--checkpoint FILE")):
        outcome = command(verb, "out", "--best", *(["total_env_steps=9000"] if verb == "resume" else []))
        assert "best_*.ckpt" in outcome.err and outcome.code == 2
        assert "out/checkpoints holds last.ckpt" in outcome.err and outcome.err.endswith(f": give {how}\n")


def test_the_commands_that_a_run_names_can_be_typed_whatever_its_directory_is_called(command: Command, tmp_path: Path):
    report = command("train", "run_dir='my runs/a=b, $x'", *SHORT, *WHOLE)
    named = re.findall(r"\((lightning-rl evaluate .*?)(?:, tensorboard .*)?\)$", report.out, re.MULTILINE)
    assert [shlex.split(each)[2:] for each in named] == [["my runs/a=b, $x"], ["my runs/a=b, $x", "--best"]]
    for each in named:
        assert command(*shlex.split(each)[1:], "--episodes", "1").code == 0
    assert command("explain", "my runs/a=b, $x", "policy.lr").out.startswith("policy.lr = ")


def test_only_commands_that_the_run_has_files_for_are_recommended(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """`evaluate` needs last.ckpt, which `checkpoint.at_end=false` may leave out, and TensorBoard its logger."""
    (tmp_path / "whole" / "checkpoints").mkdir(parents=True)
    (tmp_path / "whole" / "checkpoints" / "last.ckpt").touch()
    lines = []
    for name, logger in (("whole", {"tensorboard": {}}), ("whole", {}), ("empty", {"tensorboard": {}}), ("empty", {})):
        run_dir = str(tmp_path / name)
        config = {"run_dir": run_dir, "logger": logger, "policy": {"_target_": "lightning_rl.policies.PPO"}, "env": {}}
        report_outcome({**FIELDS, "state": "ok"}, config)
        lines.append(capsys.readouterr().out.splitlines()[0].replace(str(tmp_path), "T"))
    assert lines == [
        "ok: T/whole  (lightning-rl evaluate T/whole, tensorboard --logdir T/whole)",
        "ok: T/whole  (lightning-rl evaluate T/whole)",
        "ok: T/empty  (tensorboard --logdir T/empty)",
        "ok: T/empty",
    ]


def test_the_first_line_names_the_env_steps_as_they_are_understood():
    config = compose_config(["experiment=none", "total_env_steps=1e5", "run_dir=out"])
    assert start_line(config).endswith("PPO on CartPole-v1, 100,000 env steps → out")
    with pytest.raises(ConfigError, match="total_env_steps='ten' is text; expected integer"):
        start_line({**config, "total_env_steps": "ten"})


def test_an_evaluation_of_an_earlier_policy_names_its_env_steps():
    report = {**FIELDS, "env_steps": 2000, "evaluation": 7.0, "evaluated_at": 1500, "seconds": 10.0}
    report["evaluations"] = {"done": 3, "postponed": 2, "share_of_time": 0.19}
    assert outcome(report, "out") == (
        "  evaluated return of the policy at 1,500 env steps: 7.0\n"
        "  3 evaluations took 19% of 10.0 s; 2 postponed (evaluation.max_share)"
    )
    report["evaluations"] = {"done": 1, "postponed": 0, "share_of_time": 0.19}
    assert outcome(report, "out").endswith("  1 evaluation took 19% of 10.0 s")
    assert outcome({**FIELDS}, "out") == "  no training episode has ended; nothing was evaluated"
    estimates = {"behavior": 9.5, "wis": 12.0, "dm": 11.25}
    assert outcome({**FIELDS, "estimates": estimates}, "out") == (
        "  estimated discounted return of the last policy: 12 by wis, 11.25 by dm; of the data: 9.5"
    )


def test_the_best_file_is_the_one_with_the_best_value(command: Command, tmp_path: Path):
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(CheckpointError, match=r"holds no best_\*"):
        checkpoint_of(tmp_path, best=True)
    files = ("best_000000100_7.00.ckpt", "best_000000200_9.50.ckpt", "best_000000300_-1.00.ckpt", "last.ckpt")
    for name in files:
        (tmp_path / "checkpoints" / name).touch()
    assert checkpoint_of(tmp_path).name == "last.ckpt"
    for mode, expected in (("max", files[1]), ("min", files[2])):
        config = command("train", *SHORT, "run_dir=.", f"checkpoint.mode={mode}", "--cfg").out
        (tmp_path / "config.yaml").write_text(config)
        assert checkpoint_of(tmp_path, best=True).name == expected


def test_a_resumed_run_may_change_lr_and_notes_schedules_that_stay_at_zero(command: Command, tmp_path: Path):
    """The rate reaches 0 at 600 env steps; a rate in percent of the run is stretched by more steps."""
    falls = "policy.lr=[[0,1e-2],[600,0.0]]"
    assert command("train", "policy=dqn", "run_dir=out", *SHORT, *WHOLE, falls, "data.learning_starts=256").code == 0
    assert "note: policy.lr is 0 from 6" in command("resume", "out", "total_env_steps=700").out
    changed = ("policy.lr=[[0%,1e-2],[100%,0.0]]", "exploration.final_epsilon=0.5")
    for typed in (("total_env_steps=800", *changed), ("total_env_steps=900",)):
        learns = command("resume", "out", *typed)
        assert (learns.code, "note:" in learns.out) == (0, False)
    rows = [row for row in csv_rows(tmp_path / "out" / "metrics.csv") if row["train/lr"]]
    rates = {int(row["env_steps"]): float(row["train/lr"]) for row in rows}
    assert {rate for step, rate in rates.items() if 640 < step < 690} == {0.0}
    assert min(rate for step, rate in rates.items() if 740 < step < 790) > 0
    assert float(rows[-1]["train/exploration/epsilon"]) == 0.5
    history = yaml.safe_load((tmp_path / "out" / "config_history.yaml").read_text())
    assert any("policy.lr" in entry["changes"] for entry in history)


def test_a_run_without_a_last_checkpoint_names_those_that_it_has(command: Command, tmp_path: Path):
    """As one that is killed before its first minute, after an evaluation."""
    assert command("train", "run_dir=out", *SHORT, *WHOLE, "checkpoint.keep=1").code == 0
    checkpoints = tmp_path / "out" / "checkpoints"
    (best,) = checkpoints.glob("best_*.ckpt")
    for path in checkpoints.iterdir():
        if path != best:
            path.unlink()
    missing = "checkpoint out/checkpoints/last.ckpt does not exist: pass a file such as RUN_DIR/checkpoints/last.ckpt"
    words = f"{missing}. out/checkpoints holds {best.name}: give"
    cases = {"evaluate out": "its path", "resume out total_env_steps=900": "--checkpoint FILE"}
    assert not_refused(command, {line: f"{words} {how} (or --best)" for line, how in cases.items()}) == {}
    with pytest.raises(CheckpointError, match="is a directory"):
        Policy.load(tmp_path / "out")


def test_of_a_league_the_first_policies_are_shown():
    assert first_few([f"p{number}" for number in range(8)]) == "p0, p1, p2, p3, p4, p5, p6, p7"
    assert first_few([f"p{number}" for number in range(101)]).endswith("p7, and 93 more")
