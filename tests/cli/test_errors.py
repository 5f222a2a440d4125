"""Bad input on the command line: one line with value, expectation and next step, exit code 2, and no files."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lightning_rl import Algorithm, Policy, cli
from lightning_rl.errors import CheckpointError
from lightning_rl.runs.evaluation import evaluate
from tests.cli.conftest import Command

# What a user writes → how the error starts, and what it must also hold.
GOLDEN: list[tuple[str, str, tuple[str, ...]]] = [
    ("policy=pppo", "policy=pppo: no such policy. Did you mean 'ppo'? Choices: ", ("a2c", "pg")),
    ("policy=PPO", "policy=PPO: no such policy. Did you mean 'ppo'? Choices: ", ()),
    ("policy.lr=ünï", "override 'policy.lr=ünï' cannot be read (it holds a character that stands only in quotes)", ()),
    ("policy=mappo", "policy=mappo: no such policy. Did you mean policy=ppo policy.central_critic=true? ", ()),
    ("env=cartpol", "env=cartpol: no such env. Did you mean 'cartpole'? Choices: ", ("env.id=my_pkg.envs:MyEnv",)),
    ("experiment=ppo_cartpol", "experiment=ppo_cartpol: no such experiment. Did you mean 'ppo_cartpole'?", ()),
    ("polcy=a2c", "no key 'polcy'. Did you mean 'policy'?", ()),
    ("policy.lr_rate=1e-3", "no key 'policy.lr_rate'. Did you mean 'policy.lr'? Keys of policy: ", ("gamma",)),
    ("+policy.gama=0.9", "no key 'policy.gama'. Did you mean 'policy.gamma'?", ()),
    ("workers.fragment_len=8", "no key 'workers.fragment_len'. Did you mean 'workers.fragment_length'?", ()),
    ("model.fcnet_hidens=[8]", "no key 'model.fcnet_hidens'. Did you mean 'model.fcnet_hiddens'?", ()),
    ("trainer.max_tim=3", "no key 'trainer.max_tim'. Did you mean 'trainer.max_time'?", ()),
    ("lr=1e-3", "no key 'lr'. Did you mean 'policy.lr'?", ()),
    ("policy.gamma=abc", "policy.gamma='abc' is text; expected number", ()),
    ("policy.normalize_actions=3", "policy.normalize_actions=3 is integer; expected true or false", ()),
    ("total_env_steps=many", "total_env_steps='many' is text; expected integer", ()),
    ("policy.gamma=1.5", "policy.gamma=1.5; expected between 0 and 1", ()),
    ("total_env_steps=0", "total_env_steps=0; expected at least 1", ()),
    ("policy.lr=[[9,1],[2,0]]", "policy.lr=[[9, 1], [2, 0]]; expected a number, or [[env_step, value], …]", ()),
    (
        "workers.batch_mode=episodes",
        "workers.batch_mode='episodes'; expected truncate_episodes or complete_episodes.",
        (),
    ),
    ("stop.return=soon", "stop.return='soon'; expected number, auto or null", ()),
    ("seed=[1", "override 'seed=[1' cannot be read", ("quote a value",)),
    (
        "policy_mapping={'*':p}",
        "override \"policy_mapping={'*':p}\" cannot be read",
        ("names in a mapping stand without quotes", "? fits any"),
    ),
    ("seed=1,2", "'seed=1,2' is a sweep: add -m", ()),
    ("env=custom", "env.id has no value: set it with env.id=…; for example env.id=FrozenLake-v1 or", ()),
    ("env=atari", "env.id has no value: set it with env.id=…; for example env.id=ALE/Qbert-v5", ()),
    ("env=pettingzoo", "env.id has no value: set it with env.id=…; for example env.id=mpe2.simple_spread_v3", ()),
    ("exploration=custom", "exploration.type has no value: set it with exploration.type=…; for example", ()),
    (
        "env.id=Foraging-8x8-2p-1f",
        "env.id='Foraging-8x8-2p-1f' is no registered environment. ",
        ("env.id=lbforaging:Foraging-8x8-2p-1f",),
    ),
    ("env.id=CartPol-v1", "env.id='CartPol-v1' is no registered environment. Did you mean 'CartPole-v1'?", ()),
    ("env.id=nowhere.envs:My", "env.id='nowhere.envs:My': there is no module 'nowhere'", ()),
    ("env.kwargs.size=3", "environment 'CartPole-v1' failed to start with TypeError:", ("size",)),
    ("workers.vectorization=native env=acrobot", "environment 'Acrobot-v1' has no native vector form", ("sync",)),
    (
        "policy.minibatches=1000 workers.fragment_length=32 workers.envs_per_worker=8",
        "rollout has 256 rows (1 workers × 8 environments × 32 steps); policy.minibatches=1000 needs at least 2000",
        ("raise workers.fragment_length or lower policy.minibatches",),
    ),
    (
        "stop.metric=rollout/ep_rew",
        "stop.metric='rollout/ep_rew': no such metric. Did you mean 'rollout/ep_rew_mean'?",
        (),
    ),
    ("checkpoint.monitor=eval/ret", "checkpoint.monitor='eval/ret': no such metric.", ("eval/ep_rew_mean",)),
    ("policy.optimizer=adm", "policy.optimizer='adm' is unknown. Did you mean 'adam'?", ()),
    (
        "policy.custom_losses=[nowhere:loss]",
        "policy.custom_losses[0]='nowhere:loss': there is no module 'nowhere'",
        (),
    ),
    (
        "callbacks=[lightning.pytorch.callbacks.EarlyStopping]",
        "lightning.pytorch.callbacks.EarlyStopping: missing",
        ("monitor",),
    ),
    (
        "callbacks=[{callback:'lightning.pytorch.callbacks:EarlyStopping',monitor:'rollout/ep_rew_meen',mode:max}]",
        "callbacks[0].monitor='rollout/ep_rew_meen': no such metric. Did you mean 'rollout/ep_rew_mean'?",
        (),
    ),
    (
        "callbacks=[{callback:lightning.pytorch.callbacks:ModelCheckpoint,dirpath:/proc/mine}]",
        "callbacks[0].dirpath='/proc/mine' cannot be written: nothing can be made in '/proc'",
        (),
    ),
    (
        "logger.tensorboard.directory=/proc/mine",
        "logger directory='/proc/mine' cannot be written: nothing can be made in '/proc'",
        (),
    ),
    (
        "workers.fragment_length=1000000 total_env_steps=1200",
        "workers.fragment_length=1000000 is longer than the run, total_env_steps=1200: ",
        ("lower it to 1200 or less",),
    ),
    ("evaluation.episodes=1e6", "evaluation.episodes=1000000.0; expected between 1 and 10000", ()),
    ("policy.entropy_coef=1e30", "policy.entropy_coef=1e+30; expected between 0 and 1000000", ()),
    ("trainer.accelerator=tpu", "Lightning's Trainer refuses trainer.accelerator=tpu ", ("torch_xla",)),
    ("trainer.gradient_clip_val=0.5", "trainer.gradient_clip_val is set by lightning_rl: use policy.max_grad_norm", ()),
    ("trainer.devices=0", "Lightning's Trainer refuses trainer.accelerator=cpu trainer.devices=0", ()),
    ("policy=ppo policy=dqn", "policy=ppo and policy=dqn: one of them; to run both, add -m", ()),
    ("policy.learning_rate=1e-3", "no key 'policy.learning_rate'. Did you mean 'policy.lr'?", ()),
    ("policy.n_steps=5", "no key 'policy.n_steps'. Did you mean 'workers.fragment_length'?", ()),
    ("policy.batch_size=64", "no key 'policy.batch_size'. Did you mean 'policy.minibatches'?", ()),
    ("policy=dqn policy.batch_size=64", "no key 'policy.batch_size'. Did you mean 'data.batch_size'?", ()),
    ("policy=sac buffer_size=64", "no key 'buffer_size'. Did you mean 'data.capacity'?", ()),
    ("n_envs=3", "no key 'n_envs'. Did you mean 'workers.envs_per_worker'?", ()),
    ("total_timesteps=3", "no key 'total_timesteps'. Did you mean 'total_env_steps'?", ()),
    ("model.fcnet_hiddens=64", "model.fcnet_hiddens=64 is integer; expected list", ()),
    ("model.fcnet_hiddens=[64,x]", "model.fcnet_hiddens[1]='x' is text; expected integer between 1 and 65536", ()),
    ("model.use_lstm=flase", "model.use_lstm='flase' is text; expected true or false", ()),
    ("seed=5000000000", "seed=5000000000; expected between 0 and 4294967295", ()),
    ("policy.max_grad_norm=nan", "policy.max_grad_norm=nan; expected a finite number above 0, or null", ()),
    ("policy.optimizer_kwargs.eps=-1", "policy.optimizer_kwargs.eps=-1: Invalid epsilon value", ()),
    ("checkpoint.max_failures=0", "checkpoint.max_failures=0; expected at least 1", ()),
    ("stop.seconds=nan", "stop.seconds=nan; expected a finite number above 0, or null", ()),
    (
        "stop.metric=eval/ep_rew_mean stop.return=100 evaluation=none",
        "stop.metric='eval/ep_rew_mean' with evaluation.every_env_steps=0: nothing is ever evaluated",
        (),
    ),
    ("trainer.max_time={}", "trainer.max_time={}; expected more than no time", ()),
    ("trainer.devices=[]", "trainer.devices=[]; expected a number of devices", ()),
    ("trainer.devices=1000", "trainer.devices=1000: the processes of this run need about ", ("GiB",)),
    ("trainer.devices=1000000000000", "trainer.devices=1000000000000; expected between -1 and 1024", ()),
    ("workers.logical_workers=4000000000", "workers.logical_workers=4000000000; expected between 1 and 65536", ()),
    ("workers.envs_per_worker=1000000000000", "workers.envs_per_worker=1000000000000; expected between 1 and", ()),
    ("torch_threads=100000", "torch_threads=100000; expected between 1 and 1024", ()),
    ("callbacks=[7]", "callbacks[0]=7; expected an import path, or {callback: path, **keywords}", ()),
    (
        "callbacks=[fractions:Fraction]",
        "callbacks[0]='fractions:Fraction' is <class 'fractions.Fraction'>; expected a subclass of lightning.",
        ("Callback",),
    ),
    ("callbacks=[{callback:fractions:Fraction}]", "callbacks[0]='fractions:Fraction' is <class", ("Callback",)),
    ("callbacks=[os:getcwd]", "callbacks[0]='os:getcwd' gives '", ("expected a lightning.", "Callback")),
    (
        "callbacks=[{callback:lightning.pytorch.callbacks:EarlyStopping,monitor:eval/ep_rew_mean,patience:x}]",
        "callbacks[0].patience='x' is text; expected integer",
        (),
    ),
    (
        "callbacks=[{callback:lightning.pytorch.callbacks:EarlyStopping,monitor:eval/ep_rew_mean,mode:up}]",
        "callbacks[0]={'callback': 'lightning.pytorch.callbacks:EarlyStopping', ",
        ("`mode` can be",),
    ),
    (
        "+logger.mine._target_=fractions:Fraction",
        "logger.mine._target_='fractions:Fraction' is <class 'fractions.Fraction'>; expected a subclass of lightning.",
        ("Logger",),
    ),
    ("data.plan=fractions:Fraction", "data.plan='fractions:Fraction'; expected the import path of a generator", ()),
    ("data.plan=7", "data.plan=7 is integer; expected import path or null", ()),
    (
        "data.dataset=fractions:Fraction",
        "data.dataset='fractions:Fraction'; expected the import path of a subclass",
        ("Dataset",),
    ),
    ("env.wrappers=[zipfile:ZipFile]", "env.wrappers: ZipFile failed with ", ()),
    ("policy.lr=${nothing}", "policy.lr=${nothing}: Interpolation key 'nothing' not found", ()),
    ("policy.lr=${policy.lr}", "policy.lr=${policy.lr}: Recursive interpolation detected", ()),
    ("policy.passes=1e9", "policy.passes=1000000000.0; expected between 1 and 10000", ()),
    ("run_dir=''", "run_dir='' cannot be a run's directory: it is empty", ()),
    ("logger.csv.path=/proc/x/y.csv", "logger path='/proc/x/y.csv' cannot be written: nothing can be made in", ()),
    ("run_dir=/proc/x", "run_dir='/proc/x' cannot be a run's directory: nothing can be made in '/proc'", ()),
    ("env=pendulum model.custom_action_dist=nope", "model.custom_action_dist='nope'", ()),
    ("workers=4", "workers=4: no such workers. Did you mean workers.num_workers=4? Choices: ", ("episodes",)),
    ("+workers=4", "workers=4: no such workers. Did you mean workers.num_workers=4? Choices: ", ()),
    ("-m workers=4,5", "workers=4: no such workers. Did you mean workers.num_workers=4? Choices: ", ()),
    ("workers=[4]", "workers=[4]: no such workers. Choices: ", ()),
    ("evaluation=10000", "evaluation=10000: no such evaluation. Did you mean evaluation.every_env_steps=10000?", ()),
    ("evaluation=5%", "evaluation=5%: no such evaluation. Did you mean evaluation.every_env_steps=5%?", ()),
    ("evaluation=false", "evaluation=false: no such evaluation. Did you mean 'none'?", ()),
    ("model=64", "model=64: no such model. Did you mean model.fcnet_hiddens=[64]? Choices: ", ("lstm",)),
    ("env=null", "env=null: no such env. Choices: ", ("cartpole", "env.id=ID")),
    ("exploration=0.1", "exploration=0.1: no such exploration. Choices: ", ("epsilon_greedy",)),
    ("trainer=true", "trainer=true: no such trainer. Choices: ", ("gpu",)),
    ("policy=5", "policy=5: no such policy. Choices: ", ("ppo",)),
    ("policy=0.5", "policy=0.5: no such policy. Choices: ", ("ppo",)),
    ("policy@other=5", "policy=5: no such policy. Choices: ", ("ppo",)),
    ("hydra/launcher=4", "hydra/launcher=4: no such hydra/launcher. Choices: basic", ()),
    ("policy._target_=5", "policy._target_=5; expected an import path, such as lightning_rl.policies.PPO", ()),
    ("=5", "override '=5' names no key: write key=value", ()),
    ("policy={lr:1e-3}", "policy={lr:1e-3}: a policy's keys are given one by one, as policy.lr=…", ()),
    ("~policy", "~policy: a run needs its policy: choose one with policy=…", ()),
    ("~logger", "~logger: a run needs its logger: choose one with logger=…; logger=none leaves it out", ()),
    ("~policy.lr_rate", "no key 'policy.lr_rate'. Did you mean 'policy.lr'?", ()),
    ("workers={num_worker:4}", "no key 'workers.num_worker'. Did you mean 'workers.num_workers'?", ()),
    (
        "policy=rainbow policy.optimizer=sgd",
        "policy.optimizer=sgd takes no eps (policy.optimizer_kwargs.eps=0.00015 is for adam, adamw, rmsprop): set "
        "policy.optimizer_kwargs=null, or to keywords of sgd: momentum",
        (),
    ),
]


@pytest.mark.parametrize(("written", "start", "holds"), GOLDEN, ids=[case[0] for case in GOLDEN])
def test_a_user_s_mistake_is_reported_in_one_line_with_its_remedy(
    written: str, start: str, holds: tuple[str, ...], command: Command, tmp_path: Path
):
    outcome = command("train", "run_dir=out", *written.split())
    assert outcome.code == 2
    assert outcome.err.startswith(f"error: {start}")
    assert outcome.err.count("\n") == 1
    assert [word for word in holds if word not in outcome.err] == []
    assert re.fullmatch(r"(lightning_rl [\d.]+: .* → .*\n)?", outcome.out)  # what the run was to be
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "start"),
    [
        (("trian",), "no verb 'trian'. Did you mean 'train'?"),
        (("list", "polices"), "argument kind: invalid choice: 'polices'"),
        (("describe", "policy=pppo"), "policy=pppo: no such policy. Did you mean 'ppo'?"),
        (("describe", "train/approx"), "no metric 'train/approx'. Did you mean 'train/approx_kl'?"),
        (("describe", "polcy.lr"), "no key 'polcy.lr'. Did you mean 'policy.lr'?"),
        (("describe", "gamma"), "no key 'gamma'. Did you mean 'policy.gamma'?"),
        (("describe", "policy.discount"), "no key 'policy.discount'. Did you mean 'policy.gamma'? Keys of policy: "),
        (("describe", "workers.n_envs"), "no key 'workers.n_envs'. Did you mean 'workers.envs_per_worker'?"),
        (("describe", "workers=4"), "workers=4: no such workers. Did you mean workers.num_workers=4?"),
        (("evaluate",), "the following arguments are required: checkpoint"),
        (("evaluate", "nowhere.ckpt"), "checkpoint nowhere.ckpt does not exist"),
        (("evaluate", "x.ckpt", "--episodes", "0"), "episodes=0; expected at least 1"),
        (("evaluate", "x.ckpt", "--episodes", "1.5"), "argument --episodes: '1.5'; expected a whole number"),
        (("resume", "nowhere"), "nowhere holds no run (no config.yaml)"),
        (("train", "--nosuch"), "unrecognized arguments: --nosuch"),
    ],
)
def test_every_verb_refuses_in_the_same_way(arguments: tuple[str, ...], start: str, command: Command):
    outcome = command(*arguments)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert outcome.err.startswith(f"error: {start}")
    assert re.fullmatch(r"(lightning_rl [\d.]+: (\d+ episodes with|resume) .*\n)?", outcome.out)


LONG, NESTED = "a" * 5000, "[" * 3000


# The verbs that take a path or overrides; check-env takes them for the name of an environment, and reports on that.
OF_PATHS = [name for name in cli.VERBS if name not in ("completion", "doctor", "benchmark", "check-env")]


@pytest.mark.parametrize("verb", OF_PATHS)
def test_endless_paths_and_brackets_are_one_short_line_of_every_verb(verb: str, command: Command):
    """Longer than the system takes for a name, and deeper than a parser can follow."""
    for arguments in ([LONG], [f"{LONG}.ckpt", "x"], [f"policy.lr={NESTED}"], ["policy=ppo", f"seed={NESTED}", "seed"]):
        outcome = command(verb, *arguments)
        assert outcome.code == 2 and "Traceback" not in outcome.err, arguments[-1][:20]
        assert outcome.err.count("\n") == 1 and outcome.err.startswith("error: ")


def test_the_python_api_refuses_endless_paths():
    for call in (Policy.load, Algorithm.restore, evaluate):
        with pytest.raises(CheckpointError, match="name too long"):
            call(Path(LONG))


def test_a_file_that_is_no_checkpoint_is_refused(command: Command, tmp_path: Path):
    (tmp_path / "broken.ckpt").write_bytes(b"PK\x03\x04 cut off")
    outcome = command("evaluate", "broken.ckpt", "--env", "CartPole-v1")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "broken.ckpt cannot be read" in outcome.err


def test_an_environment_variable_turns_tracebacks_on(command: Command, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LIGHTNING_RL_TRACEBACK", "1")
    with pytest.raises(ValueError, match="no such policy"):
        command("train", "policy=pppo")


def test_an_environment_that_breaks_the_api_is_refused_before_anything_starts(command: Command, tmp_path: Path):
    (tmp_path / "broken_env.py").write_text(BROKEN)
    outcome = command("train", "env.id=broken_env:OutOfBounds", "run_dir=out")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "outside its observation_space" in outcome.err
    assert not (tmp_path / "out").exists()


def test_an_environments_own_error_is_named(command: Command, tmp_path: Path):
    (tmp_path / "broken_import.py").write_text("import missing_package\n")
    outcome = command("train", "env.id=broken_import:OutOfBounds", "run_dir=out")
    assert outcome.code == 2
    assert "missing_package" in outcome.err.splitlines()[-1]


BROKEN = """
import gymnasium as gym
import numpy as np


class OutOfBounds(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.full(2, 7, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {}
"""


def test_a_file_that_cannot_be_written_is_one_line(command: Command, monkeypatch: pytest.MonkeyPatch):
    """Whatever file it is: the system's message names it."""

    def fill_disk(arguments: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", "here/file")

    monkeypatch.setitem(cli.VERBS, "doctor", fill_disk)  # type: ignore[arg-type]
    outcome = command("doctor")
    assert (outcome.code, outcome.err) == (1, "error: OSError: [Errno 28] No space left on device: 'here/file'\n")


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["list"]])
def test_a_reader_that_closes_the_pipe_at_once_ends_a_command_quietly(arguments: list[str]):
    """As `lightning-rl … | true`: what is printed lies in a buffer until the command ends."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        program = [sys.executable, "-m", "lightning_rl", *arguments]
        ended = subprocess.run(program, stdout=pipe, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
