"""What `train` takes as an environment, every other verb takes: from a run of one's own, and from a copy of it."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from lightning_rl import Algorithm, Policy, errors
from lightning_rl.cli import main
from lightning_rl.errors import CheckpointError, ConfigError
from lightning_rl.schema import trust
from lightning_rl.schema.trust import FileTrust
from tests.families import each
from tests.trained_runs import train

WORLDS = """
import functools
import gymnasium as gym, numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv
from pettingzoo.utils import parallel_to_aec, wrappers
from lightning_rl.callbacks import RLCallback

class Parallel(ParallelEnv):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10, "name": "parallel", "is_parallelizable": True}
    def __init__(self, agents=2, render_mode=None):
        self.possible_agents, self.render_mode = [f"agent_{i}" for i in range(agents)], render_mode
    @functools.cache
    def observation_space(self, agent): return spaces.Box(0, 9, (1,), np.float32)
    @functools.cache
    def action_space(self, agent): return spaces.Discrete(2)
    def reset(self, seed=None, options=None):
        self.agents, self.t = [*self.possible_agents], 0
        return {a: np.zeros(1, np.float32) for a in self.agents}, {a: {} for a in self.agents}
    def step(self, actions):
        self.t += 1
        agents, self.agents = self.agents, self.agents if self.t < 4 else []
        def all(value): return {a: value for a in agents}
        return all(np.full(1, self.t, np.float32)), all(1.0), all(self.t == 4), all(False), all({})
    def render(self): return np.full((32, 32, 3), self.t, np.uint8)

class Quiet(wrappers.BaseParallelWrapper): pass
class Outer:
    class Inner(Parallel): pass
    @staticmethod
    def make(**given): return wrappers.OrderEnforcingWrapper(turns(**given))
class Factory:
    def __call__(self, **given): return gym.make("CartPole-v1", **given)

def make_callback(): return RLCallback()
def turns(**given): return parallel_to_aec(Parallel(**given))
quiet = lambda **given: Quiet(Parallel(**given))
three = functools.partial(Parallel, agents=3)
factory = Factory()
"""
KINDS = ["Parallel", "turns", "Outer.make", "quiet", "three", "factory"]
SMALL = ["workers.envs_per_worker=2", "workers.fragment_length=8", "model.fcnet_hiddens=[4]", "evaluation.episodes=1"]


@pytest.fixture
def forget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """The module "worlds", and a function after which the process has named nothing yet."""
    (tmp_path / "worlds.py").write_text(WORLDS)
    monkeypatch.syspath_prepend(tmp_path)

    def begin_anew() -> None:
        fresh = set[str]()
        for module in (errors, trust):
            monkeypatch.setattr(module, "named_here", fresh)

    yield begin_anew
    sys.modules.pop("worlds", None)


def each_verb(run_dir: Path, total: int, trusted: list[str], forget: Callable[[], None]) -> None:
    """Every verb that reads the directory of a run, and the two methods of the Python API."""
    with_trust = [word for package in trusted for word in ("--trust", package)]
    verbs = (
        ["evaluate", "--episodes", "1", *with_trust],
        ["video", "--episodes", "1", "--out", f"{run_dir}.gif", *with_trust],
        ["play", "--episodes", "1", "--render", "rgb", "--fps", "0", *with_trust],
        ["resume", f"total_env_steps={total}", *with_trust],
        ["explain", "seed", *with_trust],
        ["report", "--out", f"{run_dir}.html"],
    )
    for verb, *options in verbs:
        forget()
        assert main([verb, str(run_dir), *options]) == 0, f"{verb} {run_dir}"
    last = run_dir / "checkpoints" / "last.ckpt"
    forget()
    Policy.load(last, trust=trusted)
    Algorithm.restore(last, trust=trusted).stop()


@pytest.mark.parametrize("kind", each(KINDS, default=("Outer.make",)))
def test_what_train_takes_every_verb_takes(kind: str, forget: Callable[[], None], tmp_path: Path) -> None:
    run_dir, copy = tmp_path / "run", tmp_path / "copy"
    start = ["train", "policy=ppo", f"env.id=worlds:{kind}", f"run_dir={run_dir}", "total_env_steps=32"]
    assert main([*start, "callbacks=[worlds:make_callback]", *SMALL]) == 0
    shutil.copytree(run_dir, copy)
    each_verb(run_dir, 64, [], forget)

    (copy / "config.signature").unlink()
    last = copy / "checkpoints" / "last.ckpt"
    torch.save({**torch.load(last, weights_only=True), "signature": None}, last)
    forget()
    with pytest.raises((CheckpointError, ConfigError), match="not trusted"):
        Algorithm.restore(last)
    each_verb(copy, 64, ["worlds"], forget)


def test_compare_and_export_take_them_too(forget: Callable[[], None], tmp_path: Path) -> None:
    runs = [str(tmp_path / name) for name in ("a", "b")]
    for run_dir in runs:
        train(Path(run_dir), "policy=ppo", "env.id=worlds:turns", "total_env_steps=32", *SMALL)
    forget()
    assert main(["compare", *runs]) == 0 and main(["export", runs[0]]) == 0


def test_a_class_inside_a_class_is_restored_by_its_name(forget: Callable[[], None], tmp_path: Path) -> None:
    inner = importlib.import_module("worlds").Outer.Inner
    algorithm = Algorithm("ppo", inner, overrides=[f"run_dir={tmp_path}", *SMALL])
    saved = algorithm.save()
    algorithm.stop()
    forget()
    restored = Algorithm.restore(saved)
    restored.stop()
    assert restored.config["env"]["id"] == "worlds:Outer.Inner"


@pytest.mark.parametrize("name", ["np.zeros", "functools.partial", "gym.make", "spaces", "Missing", "Outer.Missing"])
def test_a_trusted_module_s_own_imports_are_no_environments(name: str, forget: Callable[[], None]) -> None:
    forget()
    with pytest.raises(ConfigError):
        FileTrust("config.yaml", ["worlds"]).check({"env": {"id": f"worlds:{name}"}})
