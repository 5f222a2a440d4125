"""N steps, a stop, and N more end in the same state, bit for bit, as 2N without a stop.

No save cuts an episode, and the run that resumes goes on with those that ran. What is compared is all
that the last checkpoint holds and all that metrics.csv does, times aside.
"""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer

from lightning_rl.callbacks import RLCallback
from lightning_rl.cli import main
from lightning_rl.runs import run
from tests import run_comparison
from tests.families import each
from tests.run_comparison import assert_equal, checked_config, first_checkpoint, learned_state, resume
from tests.run_processes import Run

UNCUT = "experiment=none evaluation.episodes=1 evaluation.max_share=null checkpoint.keep=20 workers.logical_workers=2"
SMALL = f"""{UNCUT} policy=ppo env=pendulum policy.passes=2 policy.observation_filter=mean_std
    policy.reward_filter=return_std policy.lr=[[0,1e-3],[1000,0.0]] workers.envs_per_worker=2
    workers.fragment_length=16 evaluation.every_env_steps=192""".split()
ITERATION = 64  # env steps: 2 workers × 2 environments × 16 steps
IN_PROCESSES = pytest.param(2, marks=pytest.mark.ray)
IN_PROCESSES_SLOW = pytest.param(2, marks=[pytest.mark.ray, pytest.mark.slow])
LSTM = "model=lstm model.lstm_use_prev_action=true model.lstm_cell_size=8"


def config(run_dir: Path, *overrides: str) -> dict[str, Any]:
    return checked_config(*SMALL, f"run_dir={run_dir}", *overrides)


def assert_half_and_half_are_the_whole(config: dict[str, Any], at: int, workers: int = 0) -> Path:
    """Train; resume a copy from its checkpoint at an env step; both ends are the same. Gives the copy's directory."""
    whole = Path(config["run_dir"])
    config["checkpoint"]["every_env_steps"] = at
    run.train(config)
    total = config["total_env_steps"]
    again = resume(whole, first_checkpoint(whole), whole.with_name("again"), total, workers)
    run_comparison.assert_same_run(again, whole)
    return again


# Iterations until the checkpoint, which are half of the run; overrides.
RUNS: dict[str, tuple[int, str]] = {
    "mid-epoch": (4, ""),
    "epoch-end": (3, ""),
    "lstm": (4, LSTM),
    "attention": (4, "model=attention model.attention_use_n_prev_rewards=2 model.attention_dim=8"),
    "episodes and a penalty": (4, "env=cartpole policy.kl_coef=0.5 policy.kl_target=1e-5 policy.minibatches=2"),
    "pqn": (4, "policy=pqn env=cartpole policy.minibatches=2"),
}


@pytest.mark.parametrize("workers", [0, IN_PROCESSES_SLOW])
@pytest.mark.parametrize("name", each(RUNS, default=("mid-epoch", "lstm")))
def test_n_and_n_more_steps_are_2n(tmp_path: Path, workers: int, name: str) -> None:
    iterations, overrides = RUNS[name]
    half = iterations * ITERATION
    whole = config(tmp_path / "whole", f"total_env_steps={2 * half}", *overrides.split())
    assert_half_and_half_are_the_whole(whole, half, workers)


REPLAY = f"""{UNCUT} workers.fragment_length=8 evaluation.every_env_steps=48 data.capacity=100 data.batch_size=8
    data.learning_starts=24 data.update_to_data_ratio=0.3 model.fcnet_hiddens=[16]"""
OFF_POLICY = {
    "dqn": "policy=dqn env=cartpole data.prioritized=true data.n_step=3 policy.target_update_interval=7",
    "rainbow": "policy=rainbow env=cartpole data.priority_ranked=true policy.num_atoms=5",
    "sac": "policy=sac env=pendulum policy.observation_filter=mean_std policy.reward_filter=return_std",
    "crossq": "policy=crossq env=pendulum policy.critic_hiddens=[16] policy.renorm_after=20",
    "xqc": "policy=xqc env=pendulum policy.critic_hiddens=[16,16] policy.num_atoms=11",
    "hindsight": "policy=dqn env=bit_flipping env.kwargs.bits=4 data=hindsight data.goal_strategy=episode",
    "gsde, hindsight": "policy=sac env=point_reach data=hindsight exploration=gsde data.n_step=2",
    "td3": "policy=td3 env=pendulum data.n_step=2 workers.fragment_length=7",
    "qmix": "policy=qmix env=two_step_game model.lstm_cell_size=8 data.sequence_length=2 data.sequence_stride=2",
}


@pytest.mark.parametrize("workers", [0, IN_PROCESSES_SLOW])
@pytest.mark.parametrize("name", each(OFF_POLICY, default=("dqn", "sac")))
def test_a_resumed_run_continues_replay_priorities_and_the_ratio(tmp_path: Path, name: str, workers: int) -> None:
    """The ring has wrapped by then, and 0.3 gradient steps per env step leave a remainder at every iteration."""
    overrides = f"{REPLAY} {OFF_POLICY[name]} run_dir={tmp_path / 'whole'} total_env_steps=264"
    again = assert_half_and_half_are_the_whole(checked_config(*overrides.split()), 136, workers)
    (data,) = (value for key, value in run_comparison.everything(again).items() if key.endswith("DataModule"))
    assert data["ratio"]["taken"] > 50


SHORT_RUN = f"{UNCUT} env=cartpole model.fcnet_hiddens=[8] evaluation.every_env_steps=96 total_env_steps=256"
FRAGMENTS = "workers.fragment_length=16"
EXPLORES = f"policy=ppo {FRAGMENTS} workers.envs_per_worker=2 policy.minibatches=1 exploration"
AGENTS = f"env.agents=3 env.max_episode_steps=20 {FRAGMENTS} workers.envs_per_worker=2"
R2D2 = "policy=r2d2 data.capacity=100 data.batch_size=4 model.lstm_cell_size=8 data.learning_starts=40"
EXPERIENCE = {
    "impala": f"policy=impala {FRAGMENTS} data.order=fixed data.replay_proportion=1.0 policy.minibatches=1",
    "appo": f"policy=appo {FRAGMENTS} data.order=fixed policy.kl_coef=0.5 policy.minibatches=1",
    "a3c": f"policy=a3c {FRAGMENTS} data.gradients_per_iteration=2",
    "es": "policy=es data.directions=2 data.eval_prob=0.5",
    "ars": "policy=ars data.directions=2",
    "r2d2": f"{R2D2} {FRAGMENTS} data.sequence_length=4 data.sequence_stride=2 data.burn_in=2",
    "recurrent sac": f"{R2D2} {FRAGMENTS} policy=recurrent_sac data.sequence_length=4 data.burn_in=2",
    "rnd": f"{EXPLORES}=rnd exploration.intrinsic_reward_coeff=[[0,1.0],[400,0.0]]",
    "curiosity": f"{EXPLORES}=curiosity policy.lr={{type:cosine,initial:1e-3,final:0,steps:400}}",
    "gsde": f"{EXPLORES}=gsde env=pendulum exploration.sample_freq=11",
    "epsilon greedy": f"{EXPLORES}=epsilon_greedy exploration.epsilon_timesteps=400",
    "parameter noise": f"{REPLAY} policy=dqn exploration=parameter_noise exploration.random_timesteps=50",
    "agents": f"policy=ppo {AGENTS} policy.reward_filter=return_std policy.minibatches=1",
    "agents, lstm": f"policy=ppo {AGENTS} {LSTM} policy.minibatches=1",
    "agents, gradients": f"policy=a3c {AGENTS} data.gradients_per_iteration=2",
    "agents, replay": f"policy=dqn {AGENTS} data.learning_starts=64 data.n_step=2",
    "agents, two policies": f"{AGENTS} policies={{a:{{policy:ppo}},b:{{policy:dqn}}}} policy_mapping={{agent_0:a,*:b}}",
    "agents, turns": f"policy=ppo {FRAGMENTS} env=connect_four model=default policy.minibatches=1",
}


@pytest.mark.parametrize("name", each(EXPERIENCE, default=("impala", "a3c", "es", "gsde", "agents", "agents, turns")))
def test_a_resumed_run_equals_an_uninterrupted_run_for_every_kind_of_experience(tmp_path: Path, name: str) -> None:
    """With requests, populations, gradients, sequences, target networks, and networks that explore.

    Exploration rates, learning rates and coefficients follow the env steps."""
    overrides = f"{SHORT_RUN} {EXPERIENCE[name]} run_dir={tmp_path / 'whole'}"
    assert_half_and_half_are_the_whole(checked_config(*overrides.split()), 128)


class Interrupt(RLCallback):
    """Presses Ctrl-C while iteration `at` learns."""

    def __init__(self, at: int) -> None:
        self.at = at

    def on_train_batch_start(self, trainer: Trainer, pl_module: Any, *args: Any) -> None:
        if pl_module.iterations == self.at - 1:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("workers", [0, IN_PROCESSES])
def test_a_run_resumed_after_ctrl_c_equals_an_uninterrupted_run(tmp_path: Path, workers: int) -> None:
    """Ctrl-C in iteration 5 of 8; the other run writes a checkpoint there."""
    stop, whole = 5 * ITERATION, 8 * ITERATION
    interrupted = config(tmp_path / "interrupted", f"total_env_steps={whole}", f"workers.num_workers={workers}")
    interrupted["callbacks"] = [{"callback": f"{__name__}:Interrupt", "at": 5}]
    assert run.train(interrupted)["state"] == "interrupted"
    assert learned_state(tmp_path / "interrupted")["counters"]["env_steps"] == stop
    again = resume(tmp_path / "interrupted", "last.ckpt", tmp_path / "again", whole, workers)
    run.train(config(tmp_path / "whole", f"total_env_steps={whole}", f"checkpoint.every_env_steps={stop}"))
    run_comparison.assert_same_run(again, tmp_path / "whole")


# -- saves by the clock -----------------------------------------------------------------------------------------------
TINY = """env=cartpole experiment=none model.fcnet_hiddens=[8] workers.logical_workers=2 workers.fragment_length=8
    evaluation=none"""
PIPELINES = {
    "ppo, lstm": f"{' '.join(SMALL)} {LSTM}",
    "dqn": f"{REPLAY} {OFF_POLICY['dqn']}",
    "impala": f"{TINY} policy=impala policy.minibatches=2 data.replay_proportion=1.0",
    "a3c": f"{TINY} policy=a3c data.gradients_per_iteration=2",
    "es": f"{TINY} policy=es workers.fragment_length=1 data.directions=2 env.max_episode_steps=10",
    "apex": f"""{TINY} policy=apex data.num_shards=2 data.batch_size=16 data.capacity=200 data.learning_starts=32
        data.update_to_data_ratio=0.25 data.fragments_per_iteration=1""",
}


class Copies(RLCallback):
    """Keeps last.ckpt as it was after iteration `at`."""

    def __init__(self, at: int) -> None:
        self.at = at

    def on_train_batch_start(self, trainer: Trainer, pl_module: Any, *args: Any) -> None:
        last = Path(trainer.default_root_dir) / "checkpoints" / "last.ckpt"
        if pl_module.iterations == self.at and last.exists():
            shutil.copyfile(last, last.with_name("clock.ckpt"))


@pytest.fixture(scope="module", params=each(PIPELINES, default=("ppo, lstm", "dqn", "impala")))
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Path]:
    """Overrides, and a run of them with a save by the clock after every iteration, of which the fourth is kept."""
    overrides = [*PIPELINES[request.param].split(), "total_env_steps=400"]
    run_dir = tmp_path_factory.mktemp("saved") / "run"
    composed = checked_config(*overrides, "checkpoint.every_seconds=1e-9", f"run_dir={run_dir}")
    composed["callbacks"] = [{"callback": f"{__name__}:Copies", "at": 4}]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lightning_rl.callbacks.checkpoint.MOST_SAVING", 1e9)
        run.train(composed)
    return overrides, run_dir


def test_saves_by_the_clock_do_not_change_training(saved: tuple[list[str], Path], tmp_path: Path) -> None:
    """Two runs of one seed are equal, however fast the machine is."""
    overrides, run_dir = saved
    run.train(checked_config(*overrides, f"run_dir={tmp_path / 'none'}", "checkpoint.every_seconds=null"))
    assert (run_dir / "checkpoints" / "clock.ckpt").is_file()
    assert_equal(learned_state(run_dir), learned_state(tmp_path / "none"))


def test_a_run_resumed_from_a_save_by_the_clock_is_the_run_that_went_on(
    saved: tuple[list[str], Path], tmp_path: Path
) -> None:
    run_dir = saved[1]
    shutil.copytree(run_dir, tmp_path / "again", ignore=shutil.ignore_patterns("status.json"))
    taken = run.resumed_config(tmp_path / "again", {"total_env_steps": 400})
    taken["callbacks"] = []
    taken["checkpoint"]["every_seconds"] = None
    run.train(taken, ckpt_path=tmp_path / "again" / "checkpoints" / "clock.ckpt")
    assert_equal(learned_state(tmp_path / "again"), learned_state(run_dir))


def test_a_run_resumed_from_a_best_file_is_the_run_that_went_on(tmp_path: Path) -> None:
    run.train(config(tmp_path / "whole", "total_env_steps=512", "model=lstm", "model.lstm_cell_size=8"))
    best = min((tmp_path / "whole" / "checkpoints").glob("best_*.ckpt"))
    again = resume(tmp_path / "whole", best.name, tmp_path / "again", 512, 0)
    assert_equal(learned_state(again), learned_state(tmp_path / "whole"))


@pytest.mark.parametrize("env", each(["env=cartpole", "env=repeat_after_me"], default=["env=cartpole"]))
def test_saves_at_every_iteration_change_nothing_that_is_learned(tmp_path: Path, env: str) -> None:
    for name, every in (("often", ITERATION), ("never", "null")):
        run.train(config(tmp_path / name, env, "total_env_steps=640", f"checkpoint.every_env_steps={every}"))
    assert_equal(learned_state(tmp_path / "often"), learned_state(tmp_path / "never"))


def test_a_killed_run_goes_on_from_its_save_by_the_clock(tmp_path: Path) -> None:
    overrides = (*SMALL, "run_dir=out", "total_env_steps=100000000", "checkpoint.every_seconds=0.1")
    last = tmp_path / "out" / "checkpoints" / "last.ckpt"
    with Run("train", *overrides, cwd=tmp_path) as killed:
        killed.until(last.is_file)
        killed.process.kill()
        killed.wait()
    saved = torch.load(last, weights_only=True)["counters"]["env_steps"]
    assert main(["resume", str(tmp_path / "out"), f"total_env_steps={saved + 300}"]) == 0
    assert torch.load(last, weights_only=True)["counters"]["env_steps"] >= saved + 300


@pytest.mark.ray
def test_processes_do_not_change_the_result(tmp_path: Path) -> None:
    """Two logical workers in this process, in two others, and in one other."""
    for workers in (0, 2, 1):
        run.train(config(tmp_path / str(workers), f"total_env_steps={4 * ITERATION}", f"workers.num_workers={workers}"))
    for workers in (2, 1):
        assert_equal(learned_state(tmp_path / "0"), learned_state(tmp_path / str(workers)))
