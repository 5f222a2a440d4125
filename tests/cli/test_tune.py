"""`lightning-rl tune`: search spaces, trials, pruning, continuation, and the experiment that the best trial becomes."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from lightning_rl.cli.tune import report, search_directory
from lightning_rl.config import check_config, compose_config
from lightning_rl.config.search_spaces import Dimension, experiment_text, search_space
from lightning_rl.errors import ConfigError
from lightning_rl.run_directory.listing import runs_below
from lightning_rl.run_directory.process_identity import this_process
from lightning_rl.run_directory.status import FIELDS
from lightning_rl.runs import run
from lightning_rl.runs.job_processes import Job
from lightning_rl.runs.job_progress import JobProgress
from lightning_rl.runs.search import Search
from tests.callbacks.log_files import csv_rows
from tests.cli import conftest
from tests.cli.conftest import Command
from tests.families import each
from tests.refusals import not_refused

pytestmark = pytest.mark.skipif(find_spec("optuna") is None, reason='pip install -e ".[sweep]"')

SPACES = sorted((Path(__file__).parents[2] / "conf" / "search").glob("*.yaml"))
SHORT = ("policy=ppo", "env=cartpole", "experiment=none", "total_env_steps=300", "workers.fragment_length=16")
ONE_KEY = (*SHORT, "policy.minibatches=2", "logger=none")


@pytest.mark.parametrize("policy", each((file.stem for file in SPACES), ("dqn", "ppo")))
def test_the_values_of_a_shipped_space_are_accepted(policy: str):
    fixed = [f"policy={policy}", "experiment=none"]
    dimensions, kept = search_space(fixed)
    assert kept == fixed and "policy.lr" in [dimension.key for dimension in dimensions]
    choices = [dimension.choices or (dimension.low, dimension.high) for dimension in dimensions]
    for index in range(max(map(len, choices))):
        chosen = [values[min(index, len(values) - 1)] for values in choices]
        values = [dimension.override(value) for dimension, value in zip(dimensions, chosen, strict=True)]
        check_config(compose_config([*fixed, *values]))


def test_a_space_is_hydra_s_words_and_the_command_line_adds_and_replaces(tmp_path: Path):
    file = tmp_path / "mine.yaml"
    lr = "tag(log, falls, interval(1e-4, 1e-2))"
    file.write_text(f"policy.lr: {lr}\npolicy.clip: choice(0.1, 0.2)\npolicy.gamma: 0.9,0.99\n")
    given = ["policy=ppo", "policy.gamma=0.95", "policy.passes=int(interval(1,8))", "policy.value_clip=null,0.2"]
    dimensions, fixed = search_space([*given, "model.fcnet_hiddens=choice([8],[8,8])"], file)
    assert fixed == given[:2]
    assert dimensions == [
        Dimension("policy.lr", (), 1e-4, 1e-2, log=True, falls=True),
        Dimension("policy.clip", ("0.1", "0.2")),
        Dimension("policy.passes", (), 1, 8),
        Dimension("policy.value_clip", ("null", "0.2")),
        Dimension("model.fcnet_hiddens", ("[8]", "[8,8]")),
    ]
    assert isinstance(dimensions[2].low, int)
    assert dimensions[0].override(0.003) == "policy.lr=[[0, 0.003], [100%, 0.0]]"
    assert dimensions[4].override("[8,8]") == "model.fcnet_hiddens=[8,8]"


def test_a_space_that_cannot_be_searched_is_refused(tmp_path: Path):
    file = tmp_path / "space.yaml"
    cases = [
        ("policy.lr: interval(1, 0)", "expected low < high"),
        ("policy.lr: tag(log, interval(0, 1))", "expected 0 < low < high"),
        ("policy.lr: tag(lg, interval(1, 2))", "no tag 'lg'"),
        ("policy.lr: 0.1", "expected YAML with lines"),
        ("policy.lr: 3e-4", "cannot be searched"),
        ("policy.lr: glob(*)", "cannot be searched"),
        ("policy.lr: 'interval(1'", "cannot be read"),
        ("policy.rl: interval(1, 2)", "policy.rl"),
        ("[1", "expected YAML with lines"),
        ("\xff", "expected YAML with lines"),
    ]

    def read(line: str) -> None:
        file.write_text(line, encoding="latin-1")
        search_space(["policy=ppo"], file)

    assert not_refused(read, cases) == []


def test_an_experiment_of_overrides_composes_to_what_the_overrides_do(tmp_path: Path):
    """On top of the tuned values of the pair, which an experiment would otherwise replace."""
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    schedule, hiddens = "policy.lr=[[0, 0.003], [100%, 0.0]]", "model.fcnet_hiddens=[32,32]"
    cases = {
        "tuned": ["policy=ppo", "env=cartpole", schedule, hiddens, "workers.fragment_length=64"],
        "typed": ["policy=dqn", "env=cartpole", "exploration=soft_q", hiddens, "policy.gamma=0.9"],
        "plain": ["policy=sac", "env=pendulum", "experiment=none", "exploration=gsde", "policy.tau=0.01"],
        "own": ["policy=ppo", "env.id=CartPole-v0", "env.kwargs.render_mode=ansi", "policy.value_clip=null"],
    }
    for name, overrides in cases.items():
        (tmp_path / "conf" / "experiment" / f"{name}.yaml").write_text(experiment_text(overrides, ["best"]))
        same, wanted = compose_config([f"experiment={name}", "run_dir=x"]), compose_config([*overrides, "run_dir=x"])
        assert {**same, "overrides": []} == {**wanted, "overrides": []}
    assert compose_config(["experiment=tuned"])["policy"]["gae_lambda"] == 0.9


def test_a_watch_ends_a_run_with_a_checkpoint(tmp_path: Path):
    """As a pruned trial ends: after its first evaluation, resumable."""
    seen: list[tuple[int, bool]] = []

    def watch(env_steps: int, metrics: dict[str, float], evaluated: bool) -> bool:
        seen.append((env_steps, evaluated))
        return evaluated and metrics["eval/ep_rew_mean"] > 0

    overrides = [*SHORT, "evaluation.every_env_steps=100", "evaluation.episodes=1", "evaluation.max_share=null"]
    status = run.train(compose_config([*overrides, f"run_dir='{tmp_path / 'run'}'"]), watch=watch)
    assert status["state"] == "interrupted" and 100 <= status["env_steps"] < 300
    assert [evaluated for _, evaluated in seen] == [False] * (len(seen) - 1) + [True]
    assert (tmp_path / "run" / "checkpoints" / "last.ckpt").is_file()
    config = run.resumed_config(tmp_path / "run", {})
    assert run.train(config, tmp_path / "run" / "checkpoints" / "last.ckpt")["state"] == "ok"


def new_search(directory: Path, *overrides: str, **options: object) -> Search:
    """Of two values of one key, so that few configs are composed."""
    space = directory.with_name("space.yaml")
    space.write_text("policy.gamma: choice(0.9, 0.99)\n")
    return Search((*ONE_KEY, *overrides), directory, space=space, **options)  # type: ignore[arg-type]


def ends(search: Search, value: float | None, marks: list[float], state: str = "ok") -> Job:
    """Play the next trial of a search: its evaluations at marks 1, 2, …, and the end of its run."""
    job = next(search._jobs(10**6, float("inf")))
    pruned = [search._is_pruned(job, 0, 30 * (mark + 1), each) for mark, each in enumerate(marks)]
    status = {"env_steps": 300, "seconds": 1.0, "evaluation": value, "error": None, "state": state}
    if any(pruned):
        assert pruned.index(True) == len(marks) - 1  # a run ends there
        status |= {"state": "interrupted"}
    search._record(job, [status])
    return job


def test_a_trial_below_the_median_of_others_at_its_mark_is_pruned(tmp_path: Path):
    """10 marks, of which the first two warm up; five trials set the median of 100 at mark 3."""
    search = new_search(tmp_path / "search")
    for value, at_third_mark in ((80, 80), (90, 90), (100, 100), (110, 110), (120, 120), (99, 99), (500, 101)):
        ends(search, float(value), [1.0, 1.0, float(at_third_mark)])
    states = [trial.state.name for trial in search.study.trials]
    assert states == ["COMPLETE"] * 5 + ["PRUNED", "COMPLETE"]
    assert search.study.trials[5].intermediate_values == {1: 1.0, 2: 1.0, 3: 99.0}
    assert search.study.best_value == 500.0 and search.ended == 7


def test_without_a_pruner_every_trial_goes_on(tmp_path: Path):
    search = new_search(tmp_path / "search", pruner="none")
    for value in [100.0] * 6 + [1.0]:
        ends(search, value, [value] * 9)
    assert {trial.state.name for trial in search.study.trials} == {"COMPLETE"}


def test_an_interrupted_trial_is_tried_again_by_the_next_search(tmp_path: Path):
    searched = (tmp_path / "search", "policy.gae_lambda=interval(0.8,1)")
    search = new_search(*searched)
    ends(search, 3.0, [])
    ends(search, None, [], state="interrupted")
    import optuna

    job = next(search._jobs(10**6, float("inf")))  # its process is killed: the study never learns of its end
    optuna.trial.Trial(search.study, search.study.trials[2]._trial_id).set_user_attr(
        "owner", {**this_process(), "born": "another process"}
    )
    again = new_search(*searched)
    assert again.ended == 1
    again._release_dead()
    ends(again, 4.0, [])
    ends(again, 5.0, [])
    rows = again.rows()
    assert [row["state"] for row in rows] == ["complete", "interrupted", "interrupted", "complete", "complete"]
    values = [row["policy.gae_lambda"] for row in rows]
    assert values[1] == values[2] == values[3] != values[4]
    assert job.number == 2 and again.ended == 3


def test_the_value_of_a_trial_is_the_mean_over_its_seeds(tmp_path: Path):
    search = new_search(tmp_path / "search", "seed=5", seeds=2)
    job = next(search._jobs(1, float("inf")))
    assert [config["seed"] for config in job.configs] == [5, 6]
    assert [folder.name for folder in job.run_dirs] == ["0_ppo_cartpole_seed5", "0_ppo_cartpole_seed6"]
    assert not search._is_pruned(job, 1, 60, 7.0)
    status = {"env_steps": 300, "seconds": 1.0, "error": None, "state": "ok"}
    search._record(job, [{**status, "evaluation": 10.0}, {**status, "evaluation": 30.0}])
    (trial,) = search.study.trials
    assert trial.value == 20.0 and trial.intermediate_values == {12: 7.0} and trial.user_attrs["env_steps"] == 600


def test_the_directory_of_a_search_is_written_as_for_train():
    assert search_directory(["policy=ppo", "run_dir='my runs/a=b'"], None) == Path("my runs/a=b")


def test_a_study_of_another_search_is_refused(tmp_path: Path):
    new_search(tmp_path / "search")
    with pytest.raises(ConfigError, match=r"study\.db"):
        new_search(tmp_path / "search", "policy.clip=0.1")
    with pytest.raises(ConfigError, match="seeds was 1, now 2"):
        new_search(tmp_path / "search", seeds=2)
    (tmp_path / "broken.db").write_text("no database")
    with pytest.raises(ConfigError, match=r"broken\.db cannot be opened"):
        new_search(tmp_path / "other", storage=str(tmp_path / "broken.db"))
    assert (tmp_path / "broken.db").read_text() == "no database"


DAMAGE = (
    "update trial_user_attributes set value_json='{'",
    "update study_user_attributes set value_json='[[['",
    "update trial_params set distribution_json='{}'",
    "update trials set state='BOGUS'",
    "update alembic_version set version_num='v99'",
)


def test_a_damaged_study_is_refused_before_a_trial_begins(tmp_path: Path):
    def refused(study: Path) -> None:
        with pytest.raises(ConfigError, match=r"study\.db"):
            new_search(study.parent)

    ends(new_search(tmp_path / "search"), 3.0, [])
    for number, damage in enumerate(DAMAGE):
        file = Path(shutil.copytree(tmp_path / "search", tmp_path / f"damaged_{number}")) / "study.db"
        with closing(sqlite3.connect(file)) as database, database:
            assert database.execute(damage).rowcount > 0
        refused(file)
    for name in ("cut", "pipe"):
        (tmp_path / name).mkdir()
    (tmp_path / "cut" / "study.db").write_bytes((tmp_path / "search" / "study.db").read_bytes()[:20_000])
    os.mkfifo(tmp_path / "pipe" / "study.db")
    refused(tmp_path / "cut" / "study.db")
    refused(tmp_path / "pipe" / "study.db")


def test_the_error_of_a_trial_commands_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    search = new_search(tmp_path / "search")
    job = next(search._jobs(1, float("inf")))
    red = "\x1b[31mred\x1b]0;title\x07"
    status = {**FIELDS, "state": "failed", "error": red}
    progress = JobProgress(1, "trial")
    progress.begin(job.number, "", 300, str(job.run_dirs[0]))
    progress.end(job.number, [status])
    search._record(job, [status])
    report(search, as_json=False)
    output = "".join(capsys.readouterr())
    assert "red" in output and "\x1b" not in output and "\x07" not in output


@pytest.mark.process
def test_tune_leaves_runs_a_table_and_an_experiment_and_goes_on(command: Command, tmp_path: Path):
    (tmp_path / "space.yaml").write_text("policy.gamma: choice(0.9, 0.99)\n")
    options = ("--space", "space.yaml", "--study", "mine.db", "--sampler", "random")
    arguments = ("tune", *ONE_KEY, "evaluation.episodes=1", *options)
    outcome = command(*arguments, "--trials", "1")
    assert outcome.code == 0, outcome.err
    folder = tmp_path / "mine" / "0_ppo_cartpole"
    value = json.loads((folder / "status.json").read_text())["evaluation"]
    assert f"best: trial 0, mean evaluation return {value:.1f}" in outcome.out
    assert yaml.safe_load((folder / "config.yaml").read_text())["evaluation"]["every_env_steps"] == "10%"
    assert [(row["state"], row["directory"]) for row in runs_below(tmp_path)] == [("ok", str(folder))]

    more = command(*arguments, "--trials", "2", "--json")
    assert more.code == 0 and "trial 0" not in more.out.replace('"trial": 0', "")
    found = json.loads(more.out.splitlines()[-1])
    assert [row["state"] for row in found["trials"]] == ["complete", "complete"]
    assert [row["trial"] for row in csv_rows(tmp_path / "mine" / "trials.csv")] == ["0", "1"]
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    (tmp_path / "conf" / "experiment" / "tuned.yaml").write_text(Path(found["experiment"]).read_text())
    best = next(row for row in found["trials"] if row["value"] == found["value"])
    assert f"policy.gamma={best['policy.gamma']}" in found["best"]
    assert compose_config(["experiment=tuned"])["policy"]["gamma"] == float(best["policy.gamma"])


def test_a_trial_whose_config_is_refused_has_failed(tmp_path: Path):
    """Values that the policy refuses: no process starts."""
    search = new_search(tmp_path / "search", "policy.clip=choice(-1.0)")
    assert next(search._jobs(2, float("inf")), None) is None
    rows = search.rows()
    assert [row["state"] for row in rows] == ["fail", "fail"] and "policy.clip=-1.0" in rows[0]["error"]
    assert search.best_overrides() is None and search.importances() == {}


def test_options_that_make_no_search_are_refused(command: Command, monkeypatch: pytest.MonkeyPatch):
    Path("afile").touch()
    cases = {
        "tune --trials 0": "--trials=0; expected at least 1",
        "tune evaluation=none": "a search compares evaluations",
        "tune policy=pppo": "policy=pppo has no search space. Did you mean 'ppo'?",
        "tune --space no.yaml": "--space no.yaml: no such file",
        "tune run_dir=afile": "run_dir cannot be written",
    }
    assert conftest.not_refused(command, cases, "env=cartpole") == {}
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert "pip install -e '.[sweep]'" in command("tune", *ONE_KEY).refusal and not Path("runs").exists()
