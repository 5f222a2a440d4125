"""Composed configs: choices and defaults, tuned values of a pair, and a user's own groups."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from lightning_rl.callbacks import RLCheckpoint
from lightning_rl.config.check import check_config
from lightning_rl.config.compose import compose_config, parse_overrides
from lightning_rl.config.groups import group_options, shipped_conf
from lightning_rl.config.sweeps import sweep, sweep_jobs
from lightning_rl.data.evaluator import EVALUATION, EVALUATION_DEFAULTS
from lightning_rl.data.hindsight_feed import HindsightFeed
from lightning_rl.data.offline.mixed_feed import MixedReplayFeed
from lightning_rl.envs.creator import EnvCreator
from lightning_rl.errors import ConfigError, import_object
from lightning_rl.models.catalog import MODEL_DEFAULTS
from lightning_rl.rollouts.worker_options import WORKERS
from lightning_rl.schema.signatures import keywords_of
from tests.families import each, first
from tests.shipped_policies import POLICIES

ANY_ID = ("atari", "custom", "pettingzoo")  # presets that need env.id
ENVS = [name for name in group_options("env") if name not in ANY_ID]


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        ([], "ppo_cartpole"),
        (["policy=dqn", "env.id=my_pkg.envs:Maze"], "dqn_Maze"),
        (["env=atari", "env.id=ALE/Qbert-v5"], "ppo_Qbert-v5"),
        (["env=pettingzoo", "env.id=mpe2.simple_spread_v3"], "ppo_simple_spread_v3"),
    ],
)
def test_a_run_directory_is_named_after_the_environment_that_was_chosen(overrides: list[str], name: str) -> None:
    assert compose_config(overrides)["run_dir"].partition("_")[2] == name


def yaml_content(name: str) -> dict[str, Any]:
    content = yaml.safe_load((shipped_conf() / f"{name}.yaml").read_text(encoding="utf-8"))
    content.pop("defaults", None)
    return content


def defaults(target: Any, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Keyword → default, as a config writes it (tuples are lists there)."""
    found = {name: keyword.default for name, keyword in keywords_of(target).items() if name not in without}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}


def test_the_other_sections_yaml_are_their_constructors_signatures():
    assert yaml_content("model/default") == MODEL_DEFAULTS
    assert yaml_content("checkpoint/default") == defaults(RLCheckpoint, ("dirpath",))
    for name in group_options("data"):
        data = yaml_content(f"data/{name}")
        if "_target_" not in data:  # a variant of another one
            assert data.keys() <= yaml_content("data/replay").keys()
            continue
        target = import_object(data.pop("_target_"))
        if target in (HindsightFeed, MixedReplayFeed):  # over what conf/data/replay.yaml has
            data = {**yaml_content("data/replay"), **data}
            del data["_target_"]
        expected = defaults(target)
        if "dataset" in expected:
            assert import_object(data.pop("dataset")) is expected.pop("dataset")
        assert data == expected


@pytest.mark.parametrize("env", each([*ENVS, *ANY_ID], default=("cartpole", "pong", "connect_four", "custom")))
def test_an_environments_yaml_names_every_keyword_of_the_creator(env: str):
    named = ["env.id=FrozenLake-v1"] if env in ANY_ID else []
    assert compose_config([f"env={env}", *named])["env"].keys() == keywords_of(EnvCreator).keys()


def test_sections_without_a_constructor_have_the_keys_that_are_checked():
    assert yaml_content("workers/default").keys() == WORKERS.hints.keys()
    evaluation = yaml_content("evaluation/default")
    assert evaluation.keys() == EVALUATION.hints.keys()
    # By hand there is no limit to the time of evaluations.
    assert {key: evaluation[key] for key in EVALUATION_DEFAULTS} == {**EVALUATION_DEFAULTS, "max_share": 0.2}


@pytest.mark.parametrize(
    "experiment",
    each(group_options("experiment"), default=("cartpole_two_algorithms", "dqn_bit_flipping", "none", "ppo_cartpole")),
)
def test_every_experiment_composes_and_passes_the_check(experiment: str):
    policy = next((name for name in sorted(POLICIES, key=len)[::-1] if experiment.startswith(f"{name}_")), "")
    env = experiment.removeprefix(f"{policy}_")
    pair = [f"policy={policy}", f"env={env}"] if policy in POLICIES and env in ENVS else []
    check_config(compose_config([*pair, f"experiment={experiment}"]))


ONE_ENV = ("env=cartpole", "experiment=none", "workers.envs_per_worker=1", "workers.fragment_length=50")


def test_possible_numbers_of_minibatches_are_accepted():
    for line in (
        "policy=impala policy.minibatches=4 data.fragments_per_batch=4",
        "policy=ppo data=async policy.minibatches=25",
        "policy=ppo data=gradients policy.minibatches=40",  # data=gradients has no minibatches
    ):
        check_config(compose_config([*ONE_ENV, *line.split()]))
    check_config(compose_config([*ONE_ENV[:2], "policy=ars", "policy.top_directions=16", "workers=whole_episodes"]))


def test_tuned_values_of_a_pair_apply_by_default_and_overrides_win():
    tuned = yaml_content("experiment/ppo_cartpole")
    assert compose_config()["workers"]["fragment_length"] == tuned["workers"]["fragment_length"]
    assert compose_config(["workers.fragment_length=7"])["workers"]["fragment_length"] == 7
    untuned = compose_config(["experiment=none"])
    assert untuned["workers"]["fragment_length"] == yaml_content("workers/default")["fragment_length"]


@pytest.mark.parametrize(
    ("pair", "choice"),
    first(
        4,
        [
            (("policy=sac", "env=mountaincar_continuous"), "exploration=stochastic"),
            (("policy=ppo", "env=cartpole"), "workers=short"),
            (("policy=dqn", "env=cartpole"), "exploration.type=soft_q"),
            (("policy=ppo", "env=pong"), "evaluation=default"),  # its experiment builds upon another one
            (("policy=sac", "env=mountaincar_continuous"), "model=wide"),
            (("policy=ppo", "env=connect_four"), "evaluation=none"),
            (("policy=sac", "env=mountaincar_continuous"), "exploration=rnd"),
            (("policy=dqn", "env=cartpole"), "exploration=soft_q"),
        ],
    ),
)
def test_the_experiment_of_a_pair_leaves_typed_groups_alone(pair: tuple[str, str], choice: str):
    """The group is what it is without an experiment; keys of the other groups keep their tuned values."""
    group = re.split(r"[.=]", choice)[0]
    named = [*pair, "run_dir=x"]
    config, tuned = compose_config([*named, choice]), compose_config(named)
    assert config[group] == compose_config([*named, choice, "experiment=none"])[group] != tuned[group]
    assert config["policy"].get(group, config[group]) == config[group]
    others = config.keys() - {group, "policy", "overrides"}
    assert {key: config[key] for key in others} == {key: tuned[key] for key in others}


def test_a_typed_experiment_applies_on_top_of_typed_groups():
    config = compose_config(["policy=ppo", "env=cartpole", "experiment=ppo_cartpole", "workers=short"])
    assert config["workers"]["envs_per_worker"] == yaml_content("experiment/ppo_cartpole")["workers"]["envs_per_worker"]


def test_every_job_of_a_sweep_keeps_its_typed_groups():
    found: list[dict[str, Any]] = []
    sweep(["policy=ppo", "env=cartpole", "workers=short,default"], lambda config: found.append(config) or 0.0)
    assert [config["workers"]["fragment_length"] for config in found] == [
        yaml_content(f"workers/{name}")["fragment_length"] for name in ("short", "default")
    ]


def test_an_id_alone_does_not_get_the_default_environments_tuned_values():
    config = compose_config(["env.id=FrozenLake-v1"])
    assert config["env"]["id"] == "FrozenLake-v1"
    assert config["workers"] == compose_config(["experiment=none"])["workers"]
    assert compose_config(["env=acrobot", "env.id=Acrobot-v1"])["env"]["id"] == "Acrobot-v1"


def test_a_policy_chooses_its_workers_and_the_command_line_overrides_that():
    for typed, mode in (([], "complete_episodes"), (["workers=default"], "truncate_episodes")):
        assert compose_config(["policy=pg", "env=acrobot", *typed])["workers"]["batch_mode"] == mode


def test_open_mappings_take_keys_without_a_plus():
    keys = ["env.kwargs.render_mode=ansi", "policy.optimizer_kwargs.eps=1e-5", "trainer.profiler=simple"]
    config = compose_config(keys)
    assert config["env"]["kwargs"] == {"render_mode": "ansi"}
    assert config["policy"]["optimizer_kwargs"] == {"eps": 1e-5} and config["trainer"]["profiler"] == "simple"


@pytest.mark.parametrize(
    ("key", "value"),
    first(
        2,
        [
            ("env.kwargs", "{sutton_barto_reward: true}"),
            ("logger", "{mine: {_target_: my_pkg.loggers.Mine}}"),
            ("exploration", "{eta: 1}"),
            ("rank_launcher.resources", "{CPU: 2}"),
            ("model.custom_model_config", "{a: 1}"),
            ("policy.optimizer_kwargs", "{eps: 1e-5}"),
            ("trainer", "{profiler: simple}"),
            ("workers.ray", "{num_cpus: 2}"),
        ],
    ),
)
def test_open_mappings_are_taken_as_with_two_plus_signs(key: str, value: str):
    names, typed = ["run_dir=out", "rank_launcher=ray_train"], ([f"{key}={value}"], [f"++{key}={value}"], [])
    config, plus, without = ({**compose_config([*names, *more]), "overrides": []} for more in typed)
    assert config == plus != without


def test_an_optimizer_may_be_changed_where_the_policys_file_has_keywords_for_another():
    check_config(compose_config(["policy=rainbow", "policy.optimizer=sgd", "policy.optimizer_kwargs=null"]))


def test_composed_configs_are_plain_containers():
    config = compose_config(["policy=a2c"])
    assert yaml.safe_load(yaml.safe_dump(config)) == config and "hydra" not in config


def write(file: Path, content: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)


def write_policy(conf: Path, name: str, clip: float) -> None:
    write(conf / "policy" / f"{name}.yaml", f"defaults:\n  - ppo\n  - _self_\nclip: {clip}\n")


def test_the_users_conf_adds_to_the_groups(tmp_path: Path):
    write_policy(tmp_path / "conf", "mine", 0.1)
    assert group_options("policy") == sorted([*POLICIES, "mine"])
    config = compose_config(["policy=mine"])["policy"]
    assert (config["clip"], config["_target_"]) == (0.1, compose_config()["policy"]["_target_"])


def test_a_broken_file_that_has_no_part_in_a_run_hides_no_other_message(tmp_path: Path):
    write(tmp_path / "conf/notes/list.yaml", "- 1\n")
    write(tmp_path / "conf/policy/later.yaml", "lr: [1\n")
    assert compose_config(["policy=a2c"])["policy"]["_target_"] == "lightning_rl.policies.A2C"
    with pytest.raises(ConfigError, match=r"'policy.lrr'.*'policy.lr'"):
        compose_config(["policy.lrr=1"])


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("policy/mine.yaml", "lr: [1\n", r"expected ',' or '\]'.*conf/policy/mine.yaml\", line 2"),
        ("policy/mine.yaml", "", r"policy=mine.*_target_"),
        ("policy/mine.yaml", "lr: 1\n", r"policy=mine.*_target_"),
    ],
)
def test_a_config_file_of_the_user_s_that_cannot_be_used_is_named(file: str, content: str, words: str, tmp_path: Path):
    write(tmp_path / "conf" / file, content)
    with pytest.raises(ConfigError, match=words) as raised:
        compose_config(["policy=mine"])
    assert "\n" not in str(raised.value)


def test_the_search_path_comes_after_the_users_conf_and_before_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write_policy(tmp_path / "lab", "shared", 0.3)
    write_policy(tmp_path / "lab", "mine", 0.3)
    write_policy(tmp_path / "conf", "mine", 0.1)
    monkeypatch.setenv("LIGHTNING_RL_SEARCH_PATH", str(tmp_path / "lab"))
    assert compose_config(["policy=shared"])["policy"]["clip"] == 0.3
    assert compose_config(["policy=mine"])["policy"]["clip"] == 0.1
    write(tmp_path / "conf/env/cartpole.yaml", "id: CartPole-v0\n")
    assert compose_config()["env"] == {"id": "CartPole-v0"}
    monkeypatch.setenv("LIGHTNING_RL_SEARCH_PATH", "nowhere")
    with pytest.raises(ConfigError, match=r"LIGHTNING_RL_SEARCH_PATH.*'nowhere'"):
        compose_config()


def test_sweep_jobs_are_all_combinations():
    jobs = sweep_jobs(["policy=ppo,a2c", "env=cartpole", "seed=1,2"])
    assert len(jobs) == 4 and ["policy=a2c", "env=cartpole", "seed=1"] in jobs


def test_overrides_of_a_composed_config_are_read_as_hydra_reads_them():
    read = parse_overrides(["total_env_steps=5000", "stop.seconds=1e2"])
    assert read == {"total_env_steps": 5000, "stop.seconds": 100.0}


IMPORTS = {
    "import lightning_rl": "torch lightning ray hydra gymnasium",
    "from lightning_rl.cli import main; main(['list'])": "torch lightning ray",
    "main(['train', 'policy.lr_rate=1'])": "torch lightning ray",
    "main(['train', 'env.id=CartPol-v1'])": "torch lightning ray",
    "from lightning_rl.policies import Policy": "ray hydra",
}


@pytest.mark.process
def test_unneeded_packages_are_not_imported():
    """One after another in one process, which begins anew for the last one."""
    *light, last = (f"{code}; assert not {{*sys.modules}} & {{*{names.split()}}}" for code, names in IMPORTS.items())
    for code in ("\n".join(light), last):
        done = subprocess.run([sys.executable, "-c", f"import sys; {code}"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
