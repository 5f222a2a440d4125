"""RLlib's command line: `lightning-rllib train --run=PPO --env=CartPole-v1`, `train -f FILE.yaml`, `evaluate FILE`."""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from lightning_rl import rllib
from lightning_rl.errors import ConfigError
from lightning_rl.rllib.experiments import Experiment, as_json, read_experiments, results_until
from lightning_rl.rllib.merge import merge_configs
from lightning_rl.rllib.rollout_file import RolloutFile
from lightning_rl.rllib.shown_episodes import episodes_of
from lightning_rl.rllib.trainable import find_checkpoint
from lightning_rl.schema.trust import FileTrust, trust_names

__all__ = ["main"]

PARAMS = "params.json"  # of a run: its algorithm and config
RESULTS = "result.json"  # its results, one on each line
OF_OUT = ("save_info", "use_shelve", "track_progress")  # options that need --out
# Options of `train` that are warned of, with the reason.
NO_EFFECT = {
    "--eager": "there is no TensorFlow here",
    "--trace": "there is no TensorFlow here",
    "--ray-num-cpus": "a session of Ray has the cores of the machine, and its workers take what they need",
}


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
    train.add_argument("--keep-checkpoints-num", type=int, help="newest checkpoints that are kept; otherwise all")
    train.add_argument("--checkpoint-at-end", action="store_true", default=None, help="write one after the last result")
    train.add_argument("--local-dir", help="directory of the runs")
    train.add_argument("--experiment-name", help="name of the experiment's directory there")
    train.add_argument("--num-samples", type=int, help="trainings of each variant, with different seeds")
    train.add_argument("--restore", help="a checkpoint to continue from")
    train.add_argument("--framework", choices=("tf", "tf2", "tfe", "torch"), help="torch; others are warned of")
    train.add_argument("--torch", dest="framework", action="store_const", const="torch", help="no other is there")
    train.add_argument("-v", action="count", help="log what happens (INFO); -vv: more (DEBUG)")
    for option, reason in NO_EFFECT.items():
        value: dict[str, Any] = {"type": int} if option.endswith("cpus") else {"action": "store_true", "default": None}
        train.add_argument(option, **value, help=f"no effect: {reason}")
    for verb in ("evaluate", "rollout"):
        evaluate = verbs.add_parser(verb, help="play episodes with the policy of a checkpoint")
        evaluate.add_argument("checkpoint", help="its file or directory")
        evaluate.add_argument("--run", help="the algorithm; otherwise that of the run")
        evaluate.add_argument("--env", help="otherwise that of the run")
        evaluate.add_argument("--config", type=json.loads, default={}, help="keys over those of the run, as JSON")
        evaluate.add_argument("--steps", type=int, default=10_000, help="ends after the episode that reaches them")
        evaluate.add_argument("--trust", action="append", default=[], help="import prefix that the run's file may name")
        evaluate.add_argument("--episodes", type=int, default=0, help="number of episodes, in place of steps")
        evaluate.add_argument("--render", action=argparse.BooleanOptionalAction, help="show the episodes in a window")
        evaluate.add_argument("--video-dir", type=Path, help="directory of a video of each episode")
        evaluate.add_argument("--out", type=Path, help="file of the steps: a pickled list of episodes, see RolloutFile")
        evaluate.add_argument("--save-info", action="store_true", help="with the info of each step")
        evaluate.add_argument("--use-shelve", action="store_true", help="as a shelve, which is written as they end")
        evaluate.add_argument("--track-progress", action="store_true", help="keep a file beside it that says how far")
    given = vars(parser.parse_args(arguments))
    if given.pop("verb") == "train":
        run_experiments(given)
    else:
        play(given)


def run_experiments(options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Train all experiments of the options, one after the other; the last result of each training.

    Args:
        options: the options of the command line; `None` where an option is not given.

    Raises:
        ConfigError: neither a file nor an algorithm is given.
    """
    given = {name: value for name, value in options.items() if value is not None}
    file, name = given.pop("config_file", None), given.pop("experiment_name", None)
    if verbosity := given.pop("v", 0):
        logging.basicConfig()
        logging.getLogger("lightning_rl").setLevel(logging.INFO if verbosity == 1 else logging.DEBUG)
    for option, reason in NO_EFFECT.items():
        if given.pop(option.lstrip("-").replace("-", "_"), None) is not None:
            warnings.warn(f"{option} has no effect: {reason}", stacklevel=2)
    framework = given.pop("framework", None)
    if file is None and "run" not in given:
        raise ConfigError("train needs --run=PPO and --env, or -f FILE.yaml")
    experiments = [Experiment(name or "default", given["run"])] if file is None else read_experiments(file)
    over = {key: given.pop(key) for key in ("config",) if key in given}
    last = []
    for experiment in experiments:
        values = {key: getattr(experiment, key) for key in experiment.__slots__} | given
        values["config"] = merge_configs(experiment.config, over.get("config", {}))
        if (asked := framework or values["config"].get("framework", "torch")) != "torch":
            warnings.warn(f"{experiment.name}: framework {asked!r}: 'torch' is taken, there is no other", stacklevel=2)
        values["config"].pop("framework", None)
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
        result, checkpoints = {}, dict[int, Path]()  # by their iterations
        with (place / RESULTS).open("a", encoding="utf-8") as results:
            for result in results_until(trainer, experiment.stop):
                results.write(f"{as_json({**result, 'config': None})}\n")
                print(
                    f"iteration {result['training_iteration']}: {result['timesteps_total']:,} steps, "
                    f"{result['time_total_s']:.0f} s, reward {result['episode_reward_mean']:.2f}",
                    flush=True,
                )
                if experiment.checkpoint_freq and result["training_iteration"] % experiment.checkpoint_freq == 0:
                    save(trainer, checkpoints, experiment.keep_checkpoints_num)
        if experiment.checkpoint_at_end and result["training_iteration"] not in checkpoints:
            save(trainer, checkpoints, experiment.keep_checkpoints_num)
        return result
    finally:
        trainer.stop()


def save(trainer: Any, checkpoints: dict[int, Path], kept: int | None) -> None:
    """Write a checkpoint, and delete the oldest ones of this training beyond the number that is kept."""
    checkpoints[trainer.iteration] = Path(trainer.save())
    print(f"checkpoint: {checkpoints[trainer.iteration]}", flush=True)
    while kept and len(checkpoints) > kept:
        shutil.rmtree(checkpoints.pop(min(checkpoints)).parent)


def play(options: Mapping[str, Any]) -> list[float]:
    """Play whole episodes with the policy of a checkpoint, and print their rewards, which are returned.

    Args:
        options: the options of the command line.

    Raises:
        CheckpointError: there is no checkpoint.
        ConfigError: neither the run nor the options say which algorithm it is; or two options do not go together.
    """
    if options["render"] and options["video_dir"] is not None:
        raise ConfigError("--render and --video-dir: an environment has one render mode; give one of the two")
    if options["out"] is None and (alone := [each for each in OF_OUT if options[each]]):
        raise ConfigError(f"--{alone[0].replace('_', '-')} is about the file of --out: give that too")
    file, config, env = find_checkpoint(options["checkpoint"]), options["config"], options["env"]
    params = next((folder / PARAMS for folder in file.absolute().parents[:3] if (folder / PARAMS).is_file()), None)
    saved = {} if params is None else json.loads(params.read_text(encoding="utf-8"))
    name = options["run"] or saved.get("run")
    if name is None:
        raise ConfigError(f"{file} is in no run of lightning-rllib: give --run, --env and --config")
    of_run, steps, episodes = saved.get("config", {}), options["steps"], options["episodes"]
    keys = merge_configs(of_run, config)
    keys |= {"num_workers": 0, "evaluation_num_episodes": episodes or 1, "evaluation_interval": None}
    keys = keys if env is None else {**keys, "env": env}
    trust_names(config)
    trust_names(env or "")
    names = FileTrust(f"run {params}", options["trust"])
    names.check(
        {"env": {"id": of_run.get("env")}, "model": of_run.get("model", {}), "callbacks": of_run.get("callbacks")}
    )
    with names.restrict_imports():
        trainer = trainer_class(name)(config=keys)
    rewards: list[float] = []
    played = 0
    goal = (f"{episodes} episodes" if episodes else f"{steps} steps") if options["track_progress"] else None
    try:
        trainer.restore(file)
        with (
            nullcontext()
            if (out := options["out"]) is None
            else RolloutFile(out, options["use_shelve"], options["save_info"], goal, trainer.numbered_agents) as written
        ):
            for reward, length in episodes_of(trainer, bool(options["render"]), options["video_dir"], written):
                rewards.append(reward)
                played += length
                print(f"Episode #{len(rewards)}: reward: {reward}, steps: {length}", flush=True)
                if written is not None:
                    written.end_episode(len(rewards) if episodes else played)
                if len(rewards) == episodes or (not episodes and played >= steps):
                    break
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
