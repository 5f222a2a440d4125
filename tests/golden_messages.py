"""What the package says to mistakes, on the command line and in Python: the text of golden/messages.txt.

`python scripts/regenerate.py` writes the file. Sentences stand there alone, and a change of them is read as its diff;
other tests name a type, a key or a value. Text that other packages write is not in it, nor are lists that grow with the
package.
"""

from __future__ import annotations

import contextlib
import functools
import io
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lightning_rl.cli import main
from lightning_rl.errors import ConfigError

FILE = Path(__file__).parent / "golden" / "messages.txt"

COMMANDS = r"""
train policy=pppo
train policy=PPO
train policy=mappo
train env=cartpol
train experiment=ppo_cartpol
train polcy=a2c
train policy.lr_rate=1e-3
train +policy.gama=0.9
train workers.fragment_len=8
train model.fcnet_hidens=[8]
train trainer.max_tim=3
train lr=1e-3
train policy.gamma=abc
train policy.normalize_actions=3
train total_env_steps=many
train policy.gamma=1.5
train total_env_steps=0
train policy.lr=[[9,1],[2,0]]
train workers.batch_mode=episodes
train stop.return=soon
train seed=1,2
train env=custom
train env=atari
train env=pettingzoo
train exploration=custom
train env.id=Foraging-8x8-2p-1f
train env.id=CartPol-v1
train env.id=nowhere.envs:My
train workers.vectorization=native env=acrobot
train policy.minibatches=1000 workers.fragment_length=32 workers.envs_per_worker=8
train stop.metric=rollout/ep_rew
train checkpoint.monitor=eval/ret
train policy.optimizer=adm
train policy.custom_losses=[nowhere:loss]
train callbacks=[{callback:'lightning.pytorch.callbacks:EarlyStopping',monitor:'rollout/ep_rew_meen',mode:max}]
train callbacks=[{callback:lightning.pytorch.callbacks:ModelCheckpoint,dirpath:/proc/mine}]
train logger.tensorboard.directory=/proc/mine
train workers.fragment_length=1000000 total_env_steps=1200
train evaluation.episodes=1e6
train policy.entropy_coef=1e30
train trainer.gradient_clip_val=0.5
train policy=ppo policy=dqn
train policy.learning_rate=1e-3
train policy.n_steps=5
train policy.batch_size=64
train policy=dqn policy.batch_size=64
train policy=sac buffer_size=64
train n_envs=3
train total_timesteps=3
train model.fcnet_hiddens=64
train model.fcnet_hiddens=[64,x]
train model.use_lstm=flase
train seed=5000000000
train policy.max_grad_norm=nan
train checkpoint.max_failures=0
train stop.seconds=nan
train stop.metric=eval/ep_rew_mean stop.return=100 evaluation=none
train trainer.max_time={}
train trainer.devices=[]
train trainer.devices=1000
train trainer.devices=1000000000000
train workers.logical_workers=4000000000
train workers.envs_per_worker=1000000000000
train torch_threads=100000
train callbacks=[7]
train callbacks=[fractions:Fraction]
train callbacks=[{callback:fractions:Fraction}]
train callbacks=[os:getcwd]
train callbacks=[{callback:lightning.pytorch.callbacks:EarlyStopping,monitor:eval/ep_rew_mean,patience:x}]
train +logger.mine._target_=fractions:Fraction
train data.plan=fractions:Fraction
train data.plan=7
train data.dataset=fractions:Fraction
train policy.passes=1e9
train run_dir=''
train logger.csv.path=/proc/x/y.csv
train run_dir=/proc/x
train env=pendulum model.custom_action_dist=nope
train workers=4
train +workers=4
train -m workers=4,5
train workers=[4]
train evaluation=10000
train evaluation=5%
train evaluation=false
train model=64
train env=null
train exploration=0.1
train trainer=true
train policy=5
train policy=0.5
train policy@other=5
train hydra/launcher=4
train policy._target_=5
train =5
train policy={lr:1e-3}
train ~policy
train ~logger
train ~policy.lr_rate
train workers={num_worker:4}
train policy=rainbow policy.optimizer=sgd
train policy.learning_rate=1
train policy=ppoo
train total_env_steps=abc
train policy.minibatches=0
train policy=td3 env=cartpole
train policy=dqn model=lstm
train policy=qmix env=cartpole
train stop.metric=train/foo
train trainer.max_epochs=3
train evaluation.parallel=true
train run_dir=finished
train env.id=mine:Outside
train env.id=mine:OldStep
train policy=impala workers.envs_per_worker=1 workers.fragment_length=5 policy.minibatches=8 data.fragments_per_batch=3
train policy=appo workers.envs_per_worker=1 workers.fragment_length=50 policy.minibatches=32 data=on_policy
train policy=a3c workers.envs_per_worker=1 workers.fragment_length=50 policy.microbatches=32 workers.logical_workers=2
train data=async workers.envs_per_worker=1 workers.fragment_length=50 policy.minibatches=32
train policy=impala data.replay_proportion=-1
train policy=ars policy.top_directions=17 env=cartpole experiment=none
train policy=dqn total_env_steps=300 data.fragments_per_iteration=1000000000000
train policy=ppo data=replay
train policy=ppo data=population
train policy=dqn data=async
train policy=dqn data=gradients exploration=epsilon_greedy
train policy=es data=on_policy
train policy=dqn data.batch_size=101 data.learning_starts=101 data.capacity=200
train policy=dqn data.batch_size=300 data.learning_starts=300 data.capacity=200
train policy=dqn data.batch_size=16 data.learning_starts=8
train policy=dqn data.training_intensity=inf
train policy=dqn exploration=noisy_network
train policy=rainbow policy.noisy=false
train policy=apex data.num_shards=0
train policy=apex data.num_shards=2 data.batch_size=16 data.capacity=30
train policy=apex data.n_step=9 workers.fragment_length=8
train policy=apex data.num_shards=2 data.batch_size=16 data.learning_starts=31
train policy=impala data.max_outstanding_mb=0
train policy=impala data.order=fxed
train policy=a3c data.max_staleness=-1
train policy=es workers.fragment_length=8
train policy=es workers.batch_mode=truncate_episodes
train policy=es data.directions=0
train policy=sac env=pendulum data=hindsight
train policy=sac env=point_reach data=hindsight data.prioritized=true
train policy=sac env=point_reach data=hindsight data.goal_strategy=futur
train evaluation.interval=1
train data.iterations_per_epoch=3
train evaluation.every_env_steps=1.5
train exploration=soft_q exploration.temperature=warm
train exploration.type=softq
train exploration=rnd exploration.embed_dims=3
train checkpoint.keep=-1
train env=cartpole policies={a:{}}
train env=cartpole policy.central_critic=true
train env=cartpole env.wrappers=[lightning_rl.envs.multi_agent.wrappers:CommonReward]
train env=multi_agent_cartpole count_steps_by=steps
train env=multi_agent_cartpole policies={a:{}} policy_mapping={*:b}
train env=multi_agent_cartpole policies={a:{}} policy_mapping={agent_7:a}
train env=multi_agent_cartpole policies_to_train=[zz]
train env=multi_agent_cartpole policies_to_train=[]
train env=multi_agent_cartpole policies={a:{policy:pppo}}
train env=multi_agent_cartpole policies={a:{lrr:1}}
train env=multi_agent_cartpole policies={a:{gamma:3}}
train env=multi_agent_cartpole policies={a:3}
train env=multi_agent_cartpole policies={a:{policy:es}}
train env=multi_agent_cartpole policies={a/b:{}}
train env=multi_agent_cartpole policy=es
train env=multi_agent_cartpole policy=apex
train env=multi_agent_cartpole policy=a3c policies={a:{policy:dqn},b:{}} policy_mapping={agent_0:a,*:b}
train env=multi_agent_cartpole policies={r:random}
train env=rock_paper_scissors callbacks=[lightning_rl.callbacks.SelfPlay,lightning_rl.callbacks.SelfPlay]
train env=rock_paper_scissors callbacks=[{callback:lightning_rl.callbacks.SelfPlay,opponents:best}]
train env=rock_paper_scissors callbacks=[{callback:lightning_rl.callbacks.SelfPlay,every_env_steps:null}]
train trainer.strategy=fsdp trainer.devices=2
train trainer.num_nodes=3
train policy.freeze=[model.trunk]
train model=attention model.use_lstm=true
train model.fcnet_activation=tahn
train model.fcnet_weights_initializer=orthogonel
train policy=sac env=pendulum policy.target_critics=3
train policy=tqc env=pendulum policy.dropped_quantiles=30
train policy=ppo env=point_reach data=hindsight
train exploration=soft_q exploration.temperature=[[1,2],[0,3]]
trian
describe policy=pppo
describe train/approx
describe polcy.lr
describe gamma
describe policy.discount
describe workers.n_envs
describe workers=4
evaluate nowhere.ckpt
evaluate x.ckpt --episodes 0
evaluate x.ckpt --episodes 1.5
evaluate finished --best
resume nowhere
train --nosuch
""".strip().split("\n")

SETTING = """
from collections.abc import Mapping, Sequence
from math import nan, inf
from typing import Annotated, Literal
import gymnasium as gym
from lightning_rl.callbacks import RLCheckpoint, StopCallback
from lightning_rl.data import RolloutDataModule
from lightning_rl.data.replay_datamodule import ReplayDataModule
from lightning_rl.envs.creator import EnvCreator
from lightning_rl.errors import import_object
from lightning_rl.exploration import EpsilonGreedy, SoftQ
from lightning_rl.policies import DQN, PPO, SAC
from lightning_rl.ranges import Count, NonNegativeSchedule, Portion, Positive, Probability, Range
from lightning_rl.rollouts.processes.limits import Limits
from lightning_rl.schedules import Schedule, check_schedule
from lightning_rl.signatures import coerce
OBS, ACTIONS, BOX = gym.spaces.Box(-1, 1, (3,)), gym.spaces.Discrete(2), gym.spaces.Box(-1, 1, (2,))
"""

CALLS = r"""
coerce("key", 1.5, int)
coerce("key", True, int)
coerce("key", 2**63, int)
coerce("key", nan, float)
coerce("key", 10**400, float)
coerce("key", nan, Probability)
coerce("key", "x", Probability)
coerce("key", 0.0, Positive)
coerce("key", 0, Portion)
coerce("key", -1, Positive | None)
coerce("key", 1, Annotated[float, Range(0, 1, below_high=True)])
coerce("key", "64", Sequence[Count])
coerce("key", [64, "x"], Sequence[Count] | None)
coerce("key", {"a": "b"}, Mapping[str, int])
coerce("key", "c", Literal["a", "b"])
coerce("key", "soon", float | Literal["auto"] | None)
coerce("key", [], float | Literal["auto"] | None)
coerce("key", [[0, 1.0], [10, -1.0]], NonNegativeSchedule)
coerce("key", {"type": ["linear"]}, Schedule)
coerce("key", "CartPole-v1", gym.Space)
coerce("key", 10 * "x" + "\n" + 1000 * "y", bool)
PPO(OBS, ACTIONS, gamma=3.0)
PPO(OBS, ACTIONS, learning_rate=1)
PPO(OBS, ACTIONS, pases=1)
PPO(OBS, ACTIONS, max_grad_norm=nan)
PPO(OBS, ACTIONS, model={"fcnet_hiddens": 64})
PPO(OBS, ACTIONS, model={"net_arch": [64]})
PPO(OBS, ACTIONS, optimizer_kwargs={"ep": 1})
PPO(OBS, ACTIONS, custom_losses=[{"loss": print, "weight": "x"}])
PPO(OBS, ACTIONS, lr=[["0%", 1e-3], ["100%", 0.0]])
SAC(OBS, BOX, target_entropy="much")
SoftQ(ACTIONS, 0.0)
ReplayDataModule("CartPole-v1", storage="a\0b")
RolloutDataModule("CartPole-v1", {"n_envs": 3})
RolloutDataModule("CartPole-v1", plan="x")
EnvCreator("CartPole-v1", max_episode_steps=0)
Limits(restart_backoff_s=nan)
check_schedule("lr", {"type": "cosin"})
check_schedule("lr", {"initial": 1})
check_schedule("lr", {"type": "cosine", "initial": 1, "final": 0, "steps": 9, "step": 1})
check_schedule("lr", {"type": "linear", "initial": 1, "final": 0})
check_schedule("lr", {"type": "linear", "initial": 1, "final": 0, "steps": 0})
check_schedule("lr", {"type": "linear", "initial": "a", "final": 0, "steps": 9})
check_schedule("lr", {"type": "exponential", "initial": 1, "final": 0, "steps": 9})
check_schedule("lr", {"type": "piecewise", "points": [[1, 1], [0, 1]]})
check_schedule("lr", {"type": "constant", "value": 1, "start": 5})
check_schedule("epsilon", 1.5, low=0.0, high=1.0)
import_object("nowhere.envs:MyEnv")
import_object("email.mesage:Message")
import_object("email.message.Message.keys")
import_object("collections:OrderDict")
import_object("collections:OrderedDict.fromkey")
import_object("module:")
""".strip().split("\n")

MINE = """
import gymnasium as gym
import numpy as np

class Outside(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.full(2, 7, np.float32), {}

class OldStep(Outside):
    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, {}
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one command left behind."""

    command: str
    code: int
    out: str
    err: str
    files: list[str]


@contextlib.contextmanager
def directory_of_a_user() -> Iterator[str]:
    """Work in a directory with the module `mine` and the directory of a finished run."""
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
        Path("mine.py").write_text(MINE)
        checkpoints = Path("finished", "checkpoints")
        checkpoints.mkdir(parents=True)
        Path("finished", "config.yaml").touch()
        (checkpoints / "last.ckpt").touch()
        sys.path.insert(0, place)
        try:
            yield place
        finally:
            sys.path.remove(place)
            sys.modules.pop("mine", None)


@functools.cache
def outcomes() -> list[Outcome]:
    """Each of the commands, in a directory of its own."""
    return [outcome_of(command) for command in COMMANDS]


def outcome_of(command: str) -> Outcome:
    """Run a command as a user in a directory of their own."""
    out, err = io.StringIO(), io.StringIO()
    with directory_of_a_user() as place, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        before = set(Path().rglob("*"))
        code = main(command.split())
        files = sorted(str(file) for file in set(Path().rglob("*")) - before if "__pycache__" not in file.parts)
        shown = (stream.getvalue().replace(place, "PLACE") for stream in (out, err))
        return Outcome(command, code, *shown, files)


def message_of(call: str) -> str:
    """The text of the error that a call in Python raises."""
    try:
        eval(call, _names())
    except ConfigError as error:
        return str(error)
    raise AssertionError(f"{call} raises no error")


@functools.cache
def _names() -> dict[str, object]:
    names: dict[str, object] = {}
    exec(SETTING, names)
    return names


def messages() -> str:
    """The whole text of the file."""
    blocks = [f"$ lightning-rl {each.command}\n{each.err.removeprefix('error: ').strip()}" for each in outcomes()]
    blocks += [f">>> {call}\n{message_of(call)}" for call in CALLS]
    return "\n\n".join(map(_without_lists, blocks)) + "\n"


def _without_lists(text: str) -> str:
    """Without lists of what there is, which get longer with the package, and without the size of this machine."""
    text = re.sub(r"(Choices|Metrics|Verbs|Keys[\w. ]*|keywords of sgd): [^()\n]*?(?=\)| \(|\n|$)", r"\1: …", text)
    text = re.sub(r"(neither registered|neither one of|They are) .*?(?= nor |$)", r"\1 …", text)
    return re.sub(r"\d+ GiB", "… GiB", text)
