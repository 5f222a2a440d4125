"""`explain` names the lines and overrides that set a value, one after another."""

from __future__ import annotations

import json
from pathlib import Path

from lightning_rl.config.groups import shipped_conf
from lightning_rl.config.origins import changed_keys, settings_of
from tests.cli.conftest import Command, not_refused
from tests.edited_runs import config_of, edit_config
from tests.trained_runs import TrainedRuns

CONF = shipped_conf()
TINY = ("total_env_steps=300", "evaluation=none", "logger=none", "policy.passes=1", "workers.fragment_length=16")
SHORT = (*TINY, "run_dir=out")


def line_of(place: str) -> str:
    """The line of a file that a place names."""
    file, _, number = place.rpartition(":")
    return Path(file).read_text().splitlines()[int(number) - 1].strip()


def test_the_chain_is_algorithm_experiment_command_line():
    default, policy, experiment, typed = settings_of("policy.lr", ["policy=ppo", "env=cartpole", "policy.lr=1e-3"])
    assert default.place.rpartition(":")[0].endswith("policies/ppo.py") and default.reason == "policy=ppo"
    assert line_of(default.place) == "lr: LearningRate = 1e-3,"
    assert policy.place.rpartition(":")[0] == str(CONF / "policy" / "ppo.yaml") and policy.reason == "policy=ppo"
    assert experiment.place.rpartition(":")[0] == str(CONF / "experiment" / "ppo_cartpole.yaml")
    assert line_of(policy.place) == "lr: [[0, 1.0e-3], [100%, 0.0]]"
    assert line_of(experiment.place) == "lr: [[0, 2e-3], [100%, 0.0]]"
    assert (typed.place, typed.value) == ("command line", "1e-3")


def test_a_typed_group_is_set_by_its_own_file_alone():
    typed = ["policy=ppo", "env=cartpole", "workers=short"]
    settings = settings_of("workers.fragment_length", typed)
    assert [(each.value, each.reason) for each in settings] == [("128", "workers=short"), ("64", "workers=short")]
    moved = changed_keys(typed)
    assert not {key for key in moved if key.startswith("workers.")} and "policy.lr" in moved


def test_a_value_that_refers_to_another_key_is_followed():
    settings = settings_of("policy.model.fcnet_hiddens", ["model.fcnet_hiddens=[8]"])
    hiddens = [("model.fcnet_hiddens", "[64, 64]"), ("model.fcnet_hiddens", "[8]")]
    assert [(setting.key, setting.value) for setting in settings] == [("policy.model", "${model}"), *hiddens]
    assert line_of(settings[1].place).startswith("fcnet_hiddens:")


def test_a_file_that_another_file_builds_upon_comes_first():
    settings = settings_of("data.n_step", ["policy=dqn", "experiment=none"])
    assert [Path(each.place).name.split(".")[0] for each in settings] == ["replay", "multi_step"]


def test_a_default_is_set_by_the_line_of_the_constructor_that_has_it():
    own, of_base = (settings_of(f"policy.{key}", ["policy=crossq", "experiment=none"]) for key in ("tau", "gamma"))
    assert [line_of(each.place) for each in own] == ["tau: None = None,"]
    assert [line_of(each.place) for each in of_base] == ["gamma: Probability = 0.99,"]


def test_the_users_own_conf_is_named(empty_directory: Path):
    (empty_directory / "conf" / "env").mkdir(parents=True)
    (empty_directory / "conf" / "env" / "mine.yaml").write_text("defaults:\n  - cartpole\n\nmax_episode_steps: 30\n")
    settings = settings_of("env.max_episode_steps", ["env=mine"])
    assert [setting.value for setting in settings] == ["null", "30"]
    assert settings[-1].place == f"{empty_directory / 'conf' / 'env' / 'mine.yaml'}:4"
    assert settings[-1].reason == "env=mine"


def test_a_subclass_is_set_by_its_constructor_where_it_changes_a_default_and_by_its_base_s_elsewhere(
    empty_directory: Path,
):
    text = (
        "from lightning_rl.policies import PPO\n\nclass Mine(PPO):\n"
        "    def __init__(self, *spaces, clip=0.3, **keywords):\n"
        "        super().__init__(*spaces, clip=clip, **keywords)\n"
    )
    (empty_directory / "own_policy_of_explain.py").write_text(text)
    overrides = ["policy=own_policy_of_explain:Mine", "experiment=none"]
    assert settings_of("policy.clip", overrides)[-1].place == "constructor of own_policy_of_explain:Mine"
    assert Path(settings_of("policy.passes", overrides)[-1].place).name.startswith("ppo.py")


def test_all_lists_what_differs_from_the_defaults_of_the_choices():
    changed = changed_keys(["policy=ppo", "env=cartpole", "policy.lr=1e-3", "seed=0"])
    assert changed["policy.lr"] == (1e-3, [[0, 1e-3], ["100%", 0.0]], "command line")
    assert changed["workers.envs_per_worker"][:2] == (32, 8)
    assert not {"seed", "policy.gamma", "run_dir", "overrides", "policy.model.fcnet_hiddens"} & changed.keys()
    assert changed_keys(["policy=sac", "env=cartpole", "experiment=none"]) == {}


def test_a_file_is_a_change_only_where_it_moved_out_of_the_run_directory():
    for run_dir in ("elsewhere", "t", r"'it\'s here'"):
        assert changed_keys(["policy=sac", "env=cartpole", "experiment=none", f"run_dir={run_dir}"]) == {}
    moved = changed_keys(["policy=sac", "env=cartpole", "experiment=none", "logger.csv.path=table.csv"])
    assert list(moved) == ["logger.csv.path"]


def test_a_config_is_explained_without_a_run(command: Command):
    outcome = command("explain", "policy=ppo", "env=cartpole", "policy.gae_lambda", "policy.gae_lambda=0.5")
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert lines[0] == "policy.gae_lambda = 0.5"
    assert lines[3].startswith("→ 3. command line") and lines[3].endswith("policy.gae_lambda=0.5")
    assert lines[4] == "lightning_rl.policies.ppo.PPO:" and "gae_lambda = 0.95 (number between 0 and 1)" in lines[5]
    assert command("explain", "policy=ppo", "--all").out.split("\n")[0].split() == ["key", "value", "default", "place"]


def test_a_run_is_explained_by_its_own_overrides_and_its_history(command: Command, empty_directory: Path):
    assert command("train", "policy.gamma=0.9", "env.kwargs.sutton_barto_reward=false", *SHORT).code == 0
    run_dir, typed = empty_directory / "out", ["policy.gamma=0.9", "++env.kwargs.sutton_barto_reward=false", *SHORT]
    assert config_of(run_dir)["overrides"] == typed
    assert command("resume", "out", "total_env_steps=1500").code == 0
    found = json.loads(command("explain", "out", "total_env_steps", "--json").out)
    assert (found["value"], found["note"], found["settings"][-1]["value"]) == (1500, "", "300")
    assert [(change["before"], change["after"]) for change in found["changes"]] == [(300, 1500)]
    assert "→ 4. resumed at " in command("explain", "out", "total_env_steps").out
    assert "→ 2. command line" in command("explain", "out", "env.kwargs.sutton_barto_reward").out.replace("1. ", "2. ")

    def changed() -> dict[str, dict[str, object]]:
        return {row["key"]: row for row in json.loads(command("explain", "out", "--all", "--json").out)["keys"]}

    rows = changed()
    assert rows["policy.gamma"] | {"place": ""} == {"key": "policy.gamma", "value": 0.9, "default": 0.99, "place": ""}
    place = found["changes"][0]["env_steps"]
    expected = {"value": 1500, "default": 100_000, "place": f"resumed at {place:,} env steps"}
    assert rows["total_env_steps"] == {"key": "total_env_steps", **expected}
    assert command("resume", "out", "total_env_steps=2500", "policy.lr=2e-3").code == 0
    rates = changed()["policy.lr"]
    assert rates["value"] == 2e-3 and str(rates["place"]).startswith("resumed at ")

    edit_config(run_dir, "torch_threads", 7)
    assert "today's files give 1" in command("explain", "out", "torch_threads").out
    edit_config(run_dir, "torch_threads", 1)
    edit_config(run_dir, "overrides", ...)
    outcome = command("explain", "out", "policy.gamma")
    assert outcome.out.startswith("policy.gamma = 0.9\nnote: out holds no overrides")


def test_a_sweep_gives_each_job_its_overrides(command: Command, empty_directory: Path):
    assert command("train", "-m", "seed=1,2", "policy.gamma=0.9", "run_dir=sweep", *TINY).code == 0
    found = json.loads(command("explain", "sweep/1_ppo_cartpole", "seed", "--json").out)
    assert found["value"] == 2 and found["settings"][-1]["value"] == "2"


def test_a_file_of_another_s_run_imports_nothing(command: Command, trained_runs: TrainedRuns, tmp_path: Path):
    run_dir = trained_runs.copy("ppo", tmp_path / "out")
    (tmp_path / "unheard_of").mkdir()
    (tmp_path / "unheard_of" / "__init__.py").write_text("raise SystemExit('imported')\n")
    for overrides, message in (
        (["policy=unheard_of.package:Policy"], "names code that you have not trusted"),
        (["hydra.searchpath=[pkg://unheard_of]"], "which a file may not set"),
        (["+hydra/launcher=joblib"], "which a file may not set"),
        ("policy=ppo", "expected a list of key=value texts"),
        ([3], "expected a list of key=value texts"),
    ):
        edit_config(run_dir, "overrides", overrides)
        assert message in command("explain", "out", "policy.gamma").refusal


EXPECTED = ": expected a run directory or overrides such as policy=ppo env=cartpole, followed by one key"


def test_bad_input_is_one_line(command: Command, trained_runs: TrainedRuns, tmp_path: Path):
    run_dir = trained_runs.copy("ppo", tmp_path / "out")
    (run_dir / "config_history.yaml").write_text("- at: 3\n")
    cases = {
        "explain out seed": "config_history.yaml is damaged",
        "explain policy=ppo policy.lrr": "no key 'policy.lrr'. Did you mean 'policy.lr'?",
        "explain . seed": ". holds no run",
        "explain policy=ppo": EXPECTED,
        "explain policy=ppo a b": EXPECTED,
        "explain policy=ppo seed --all": EXPECTED,
        "explain nowhere seed": EXPECTED,
        "explain . policy=ppo seed": EXPECTED,
    }
    assert not_refused(command, cases) == {}
