"""`lightning-rllib train`, `evaluate` and `rollout`, with options and with YAML files, do what RLlib's command does."""

from __future__ import annotations

import json
import logging
import pickle
import shelve
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from lightning_rl.errors import ConfigError
from lightning_rl.rllib import register_env
from lightning_rl.rllib.__main__ import main, run_experiments
from lightning_rl.rllib.agents.pg import PGTrainer
from lightning_rl.rllib.experiments import Experiment, read_experiments, variants
from tests.rllib.examples.envs import MultiAgentCartPole

TUNED = sorted((Path(__file__).parent / "tuned").glob("*.yaml"))
QUICK = {"num_envs_per_worker": 2, "rollout_fragment_length": 16, "model": {"fcnet_hiddens": [8]}}
pytestmark = pytest.mark.filterwarnings("ignore:.*no counterpart.*", "ignore:.*is retired.*")


def test_training_writes_results_and_checkpoints_that_evaluate_plays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"run": "PPO", "env": "CartPole-v1", "config": json.dumps(QUICK), "stop": '{"training_iteration": 3}'}
    options |= {"local-dir": str(tmp_path), "experiment-name": "first", "checkpoint-freq": "2"}
    main(["train", *(f"--{name}={value}" for name, value in options.items()), "--checkpoint-at-end"])
    run = tmp_path / "first" / "PPO_CartPole-v1_0"
    results = [json.loads(line) for line in (run / "result.json").read_text().splitlines()]
    assert [result["training_iteration"] for result in results] == [1, 2, 3]
    assert sorted(folder.name for folder in run.glob("checkpoint_*")) == ["checkpoint_000002", "checkpoint_000003"]
    assert capsys.readouterr().out.count("iteration ") == 3
    for verb, checkpoint in (("evaluate", run), ("rollout", run / "checkpoint_000002" / "checkpoint-2")):
        main([verb, str(checkpoint), "--episodes=3"])
        lines = capsys.readouterr().out.splitlines()
        assert [line.split(":")[0] for line in lines if "Episode" in line][:3] == [
            "Episode #1",
            "Episode #2",
            "Episode #3",
        ]
    main(["evaluate", str(run), "--run=PPO", "--steps=60", '--config={"horizon": 5}'])
    assert capsys.readouterr().out.count("steps: 5") == 12
    main(["evaluate", str(run), "--steps=12", '--config={"horizon": 5}', "--no-render", f"--video-dir={tmp_path}"])
    assert capsys.readouterr().out.count("steps: 5") == 3 == len([*tmp_path.glob("episode_00000*")])
    with pytest.raises(ConfigError, match="one of the two"):
        main(["evaluate", str(run), "--render", f"--video-dir={tmp_path}"])
    params = run / "params.json"
    content = params.read_text()
    for harmful in ({"env": "evil_pkg:Env"}, {"model": {"custom_model": "evil_pkg:Net"}}):
        params.write_text(json.dumps({"run": "PPO", "config": {**json.loads(content)["config"], **harmful}}))
        with pytest.raises(ConfigError, match="evil_pkg"):  # before it is imported
            main(["evaluate", str(run)])
    with pytest.raises(ConfigError, match="give --run"):
        (run / "params.json").unlink()
        main(["evaluate", str(run)])


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """A checkpoint of an untrained PG policy of CartPole."""
    trainer = PGTrainer(env="CartPole-v1", config=QUICK)
    path = trainer.save(tmp_path / "saved")
    trainer.stop()
    return path


def test_the_steps_of_episodes_are_written(
    checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each step begins where the one before led to; CartPole gives 1 for each, so the reward counts them."""
    given = ["rollout", checkpoint, "--run=PG", "--env=CartPole-v1", f"--config={json.dumps(QUICK)}", "--episodes=2"]
    main([*given, f"--out={tmp_path / 'rollouts.pkl'}"])
    lengths = [int(line.rpartition(" ")[2]) for line in capsys.readouterr().out.splitlines() if "Episode" in line]
    episodes = pickle.loads((tmp_path / "rollouts.pkl").read_bytes())
    assert [len(episode) for episode in episodes] == lengths and len(lengths) == 2
    for episode in episodes:
        assert all(len(step) == 5 and step[0].shape == (4,) and step[1] in (0, 1) for step in episode)
        assert all(np.array_equal(step[2], then[0]) for step, then in pairwise(episode))
        assert sum(step[3] for step in episode) == len(episode)
        assert [step[4] for step in episode] == [False] * (len(episode) - 1) + [True]
    told: list[str] = []
    unlink = Path.unlink
    monkeypatch.setattr(Path, "unlink", lambda self, **keywords: (told.append(self.read_text()), unlink(self))[1])
    main([*given, f"--out={tmp_path / 'shelf'}", "--use-shelve", "--save-info", "--track-progress"])
    with shelve.open(str(tmp_path / "shelf"), "r") as shelf:
        assert shelf["num_episodes"] == 2 and len(shelf) == 3
        assert all(len(step) == 6 and step[5] == {} for number in "01" for step in shelf[number])
        assert [len(shelf[number]) for number in "01"] == lengths
    assert told == ["2 / 2 episodes completed\n"] and not [*tmp_path.glob("__progress_*")]
    with pytest.raises(ConfigError, match="--save-info"):
        main([*given, "--save-info"])


def test_the_steps_of_several_agents_are_written_by_agent(tmp_path: Path) -> None:
    register_env("two_poles", lambda config: MultiAgentCartPole({"num_agents": 2}))
    policies = {"pole": (None, None, None, {})}
    trainer = PGTrainer(env="two_poles", config={**QUICK, "multiagent": {"policies": policies}})
    path = trainer.save(tmp_path)
    trainer.stop()
    config = json.dumps({**QUICK, "multiagent": {"policies": {"pole": None}}})
    given = ["rollout", path, "--run=PG", "--env=two_poles", f"--config={config}", "--episodes=1"]
    main([*given, f"--out={tmp_path / 'rollouts.pkl'}"])
    (episode,) = pickle.loads((tmp_path / "rollouts.pkl").read_bytes())
    assert set(episode[0][0]) == set(episode[0][1]) == {0, 1} and episode[-1][4] and not episode[0][4]


def test_a_file_holds_experiments_and_options_go_over_it(tmp_path: Path) -> None:
    file = tmp_path / "several.yaml"
    entry: dict[str, Any] = {"run": "PG", "env": "CartPole-v1", "stop": {"training_iteration": 1}}
    config = {**QUICK, "lr": {"grid_search": [0.1, 0.2]}, "model": {"fcnet_hiddens": {"grid_search": [[4], [8]]}}}
    file.write_text(yaml.safe_dump({"grid": {**entry, "config": config}, "twice": {**entry, "num_samples": 2}}))
    last = run_experiments({"config_file": str(file), "config": {"gamma": 0.5}, "local_dir": str(tmp_path)})
    grid = [(each["config"]["lr"], each["config"]["model"]["fcnet_hiddens"]) for each in last[:4]]
    assert sorted(grid) == [(0.1, [4]), (0.1, [8]), (0.2, [4]), (0.2, [8])]
    assert len(last) == 6 and last[5]["config"]["seed"] == 1
    assert all(each["config"]["gamma"] == 0.5 and each["training_iteration"] == 1 for each in last)


def test_only_the_newest_checkpoints_are_kept_and_words_of_tensorflow_are_warned_of(tmp_path: Path) -> None:
    file = tmp_path / "tensorflow.yaml"
    entry = {"run": "PG", "env": "CartPole-v1", "stop": {"training_iteration": 3}, "checkpoint_freq": 1}
    file.write_text(yaml.safe_dump({"old": {**entry, "config": {**QUICK, "framework": "tf"}}}))
    given = ["train", f"-f={file}", f"--local-dir={tmp_path}", "--keep-checkpoints-num=2", "--eager", "-vv"]
    level = logging.getLogger("lightning_rl").level
    with pytest.warns(UserWarning, match="'torch' is taken") as warned:
        main(given)
    assert any("--eager has no effect" in str(each.message) for each in warned)
    assert logging.getLogger("lightning_rl").level == logging.DEBUG
    logging.getLogger("lightning_rl").setLevel(level)
    run = tmp_path / "old" / "PG_CartPole-v1_0"
    assert sorted(folder.name for folder in run.glob("checkpoint_*")) == ["checkpoint_000002", "checkpoint_000003"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*(no counterpart|retired|torch.jit)")
        main(
            [
                "train",
                "--run=PG",
                "--env=CartPole-v1",
                "--torch",
                '--stop={"training_iteration": 1}',
                f"--local-dir={tmp_path}",
            ]
        )


def test_mistakes_in_files_and_options_are_named(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    for content, message in (
        ({"a": {"env": "CartPole-v1"}}, "'a' has no key 'run'"),
        ({"a": {"run": "PPO", "stopp": {}}}, "'stopp'. Did you mean 'stop'"),
        (["a"], "describes no experiments"),
    ):
        file.write_text(yaml.safe_dump(content))
        with pytest.raises(ConfigError, match=message):
            read_experiments(file)
    with pytest.raises(ConfigError, match="train needs --run"):
        main(["train", "--env=CartPole-v1"])


def test_a_grid_is_every_combination() -> None:
    found = [*variants({"a": {"grid_search": [1, 2]}, "b": {"c": {"grid_search": [3, 4]}}, "d": {}})]
    assert found == [{"a": a, "b": {"c": c}, "d": {}} for a in (1, 2) for c in (3, 4)]


@pytest.mark.parametrize("file", TUNED, ids=lambda file: file.stem)
def test_a_tuned_example_can_be_read(file: Path) -> None:
    (experiment,) = read_experiments(file)
    assert isinstance(experiment, Experiment) and {"episode_reward_mean", "timesteps_total"} == set(experiment.stop)


@pytest.mark.slow
@pytest.mark.parametrize("file", TUNED, ids=lambda file: file.stem)
def test_a_tuned_example_reaches_its_reward(file: Path, tmp_path: Path) -> None:
    (experiment,) = read_experiments(file)
    (last,) = run_experiments({"config_file": str(file), "local_dir": str(tmp_path)})
    assert last["episode_reward_mean"] >= experiment.stop["episode_reward_mean"]
