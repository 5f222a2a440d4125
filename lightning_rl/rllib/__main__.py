"""RLlib's command line: `lightning-rllib train --run=PPO --env=CartPole-v1`, `train -f FILE.yaml`, `evaluate FILE`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning_rl import rllib
from lightning_rl.errors import ConfigError
from lightning_rl.rllib.experiments import Experiment, as_json, read_experiments, results_until
from lightning_rl.rllib.merge import merge_configs
from lightning_rl.rllib.trainable import find_checkpoint
from lightning_rl.schema.trust import FileTrust, trust_names

__all__ = ["main"]

PARAMS = "params.json"  # of a run: its algorithm and config
RESULTS = "result.json"  # its results, one on each line


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script `lightning-rllib`, and `python -m lightning_rl.rllib`.

    Raises:
        ConfigError: an option or a file makes no sense.
    """
    parser = argparse.ArgumentParser(prog="lightning-rllib", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    train = verbs.add_parser("train", help="train an algorithm, or the experiments of a YAML file")
    train.add_argument(
        "-f", "--config-file", help="YAML file {name: {run, env, stop, config, …}}; other options go over it"
    )
    train.add_argument("--run", help="the algorithm: PPO, DQN, IMPALA, …")
    train.add_argument("--env", help="a Gymnasium id, a registered name or an import path")
    train.add_argument("--config", type=json.loads, help="RLlib's keys as JSON")
    train.add_argument("--stop", type=json.loads, help="names of a result and the numbers that end training, as JSON")
    train.add_argument("--checkpoint-freq", type=int, help="results between two checkpoints")
    train.add_argument("--checkpoint-at-end", action="store_true", default=None, help="write one after the last result")
    train.add_argument("--local-dir", help="directory of the runs")
    train.add_argument("--experiment-name", help="name of the experiment's directory there")
    train.add_argument("--num-samples", type=int, help="trainings of each variant, with different seeds")
    train.add_argument("--restore", help="a checkpoint to continue from")
    for verb in ("evaluate", "rollout"):
        evaluate = verbs.add_parser(verb, help="play episodes with the policy of a checkpoint")
        evaluate.add_argument("checkpoint", help="its file or directory")
        evaluate.add_argument("--run", help="the algorithm; otherwise that of the run")
        evaluate.add_argument("--env", help="otherwise that of the run")
        evaluate.add_argument("--config", type=json.loads, default={}, help="keys over those of the run, as JSON")
        evaluate.add_argument("--steps", type=int, default=10_000, help="least number of steps")
        evaluate.add_argument("--trust", action="append", default=[], help="import prefix that the run's file may name")
        evaluate.add_argument("--episodes", type=int, default=0, help="number of episodes, in place of steps")
    given = vars(parser.parse_args(arguments))
    if given.pop("verb") == "train":
        run_experiments(given)
    else:
        play(**given)


def run_experiments(options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Train all experiments of the options, one after the other; the last result of each training.

    Args:
        options: the options of the command line; `None` where an option is not given.

    Raises:
        ConfigError: neither a file nor an algorithm is given.
    """
    given = {name: value for name, value in options.items() if value is not None}
    file, name = given.pop("config_file", None), given.pop("experiment_name", None)
    if file is None and "run" not in given:
        raise ConfigError("train needs --run=PPO and --env, or -f FILE.yaml")
    experiments = [Experiment(name or "default", given["run"])] if file is None else read_experiments(file)
    over = {key: given.pop(key) for key in ("config",) if key in given}
    last = []
    for experiment in experiments:
        values = {key: getattr(experiment, key) for key in experiment.__slots__} | given
        values["config"] = merge_configs(experiment.config, over.get("config", {}))
        values["stop"] = values["stop"] or {"training_iteration": 100}
        chosen = Experiment(**values)
        last += [train_one(chosen, config, index) for index, config in enumerate(chosen.trainings())]
    return last


def train_one(experiment: Experiment, config: Mapping[str, Any], index: int) -> dict[str, Any]:
    """Train until the experiment's `stop`, print and write each result; the last one."""
    folder = None
    if experiment.local_dir is not None:
        folder = Path(experiment.local_dir) / experiment.name / f"{experiment.run}_{config.get('env')}_{index}"
    trainer = trainer_class(experiment.run)(config=config, logger_creator=folder and (lambda _: Folder(folder)))
    try:
        if experiment.restore is not None:
            trainer.restore(experiment.restore)
        place = Path(trainer.logdir)
        place.mkdir(parents=True, exist_ok=True)
        (place / PARAMS).write_text(as_json({"run": experiment.run, "config": config}), encoding="utf-8")
        print(f"{experiment.name}: {experiment.run} in {place}", flush=True)
        result, saved_at = {}, 0
        with (place / RESULTS).open("a", encoding="utf-8") as results:
            for result in results_until(trainer, experiment.stop):
                results.write(f"{as_json({**result, 'config': None})}\n")
                print(
                    f"iteration {result['training_iteration']}: {result['timesteps_total']:,} steps, "
                    f"{result['time_total_s']:.0f} s, reward {result['episode_reward_mean']:.2f}",
                    flush=True,
                )
                if experiment.checkpoint_freq and result["training_iteration"] % experiment.checkpoint_freq == 0:
                    saved_at = result["training_iteration"]
                    print(f"checkpoint: {trainer.save()}", flush=True)
        if experiment.checkpoint_at_end and saved_at != result["training_iteration"]:
            print(f"checkpoint: {trainer.save()}", flush=True)
        return result
    finally:
        trainer.stop()


def play(
    checkpoint: str,
    run: str | None,
    env: str | None,
    config: Mapping[str, Any],
    steps: int,
    episodes: int,
    trust: Sequence[str] = (),
) -> list[float]:
    """Play whole episodes with the policy of a checkpoint, and print their rewards, which are returned.

    Args:
        checkpoint, run, env, config, steps, episodes: the options.
        trust: import prefixes of code that the run's file may name.

    Raises:
        CheckpointError: there is no checkpoint.
        ConfigError: neither the run nor the options say which algorithm it is.
    """
    file = find_checkpoint(checkpoint)
    params = next((folder / PARAMS for folder in file.absolute().parents[:3] if (folder / PARAMS).is_file()), None)
    saved = {} if params is None else json.loads(params.read_text(encoding="utf-8"))
    name = run or saved.get("run")
    if name is None:
        raise ConfigError(f"{file} is in no run of lightning-rllib: give --run, --env and --config")
    of_run = saved.get("config", {})
    keys = merge_configs(of_run, config)
    keys = {**keys, "num_workers": 0, "evaluation_num_episodes": episodes or 10, "evaluation_interval": None}
    keys = keys if env is None else {**keys, "env": env}
    trust_names(config)
    trust_names(env or "")
    names = FileTrust(f"run {params}", trust)
    names.check(
        {"env": {"id": of_run.get("env")}, "model": of_run.get("model", {}), "callbacks": of_run.get("callbacks")}
    )
    with names.restrict_imports():
        trainer = trainer_class(name)(config=keys)
    rewards: list[float] = []
    played = 0
    try:
        trainer.restore(file)
        while len(rewards) < episodes if episodes else played < steps:
            found = trainer.evaluate()["evaluation"]["hist_stats"]
            for reward, length in zip(found["episode_reward"], found["episode_lengths"], strict=True):
                rewards.append(reward)
                played += length
                print(f"Episode #{len(rewards)}: reward: {reward}, steps: {length}", flush=True)
    finally:
        trainer.stop()
    return rewards


class Folder:
    """A logger that says where a trainer writes."""

    def __init__(self, logdir: Path) -> None:
        self.logdir = str(logdir)

    def on_result(self, result: Mapping[str, Any]) -> None:
        """Nothing: `train_one` writes results."""

    def flush(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


def trainer_class(name: str) -> Any:
    """The trainer of an algorithm's name."""
    return getattr(rllib, f"{name}Trainer")


if __name__ == "__main__":
    main()
