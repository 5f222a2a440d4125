"""Which algorithm goes with what, found by trying; `python scripts/regenerate.py --all` writes the page."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from lightning_rl.config import check_config, compose_config
from lightning_rl.config.run_fractions import fractions_to_env_steps
from lightning_rl.data.population_source import evaluate_perturbations
from lightning_rl.envs import EnvCreator
from lightning_rl.errors import ConfigError, UnsupportedSpaceError
from lightning_rl.models import FullyConnectedNetwork
from lightning_rl.policies import Policy
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.runs import run
from lightning_rl.sample_batch import SampleBatch
from tests.shipped_policies import FOR_GROUPS, POLICIES, online, policy_class

__all__ = ["FEATURES", "SLOW", "page", "works"]

DEVICE = "cpu"  # on which policies learn

VECTOR, DISCRETE, BOX = spaces.Box(-1, 1, (3,)), spaces.Discrete(3), spaces.Box(-2, 2, (2,))
IMAGE = spaces.Box(0, 255, (12, 12, 3), np.uint8)
MASKED = spaces.Dict({"action_mask": spaces.MultiBinary(3), "x": VECTOR})


class AnySpaces(gym.Env[Any, Any]):
    """Random observations of a space, episodes of 5 steps; an "action_mask" always allows action 0."""

    def __init__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.steps = 0
        return self.look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self.action_space.contains(action):
            raise ValueError(f"action {action!r} is not in {self.action_space}")
        self.steps += 1
        return self.look(), float(self.np_random.normal()), self.steps == 5, False, {}

    def look(self) -> Any:
        obs = self.observation_space.sample()
        if isinstance(obs, dict) and "action_mask" in obs:
            obs["action_mask"][0] = 1
        return obs


class Auxiliary(FullyConnectedNetwork):
    """A custom model with a custom loss."""

    def custom_loss(self, policy_loss: Tensor, loss_inputs: SampleBatch) -> list[Tensor]:
        return [policy_loss, 0.01 * self.trunk(loss_inputs.obs).square().mean()]


def _case(obs: Any, actions: Any = None, /, exploration: Any = None, **model: Any) -> Callable[[str], None]:
    """With `actions` of `None`: Discrete, or Box for algorithms that refuse these."""

    def tried(policy: str) -> None:
        changes = {"model": model, **({"exploration": exploration} if exploration else {})}
        try:
            _learns(policy, obs, DISCRETE if actions is None else actions, changes)
        except UnsupportedSpaceError:
            if actions is not None:
                raise
            _learns(policy, obs, BOX, changes)

    return tried


def _exploring(kind: str, **keywords: Any) -> Callable[[str], None]:
    return _case(VECTOR, exploration={"type": kind, **keywords})


def _run(policy: str, *overrides: str) -> None:
    """A run with a Trainer, as from the command line, until it has learned."""
    fixed = f"""policy={policy} experiment=none evaluation=none logger=none model.fcnet_hiddens=[8]
        trainer.enable_progress_bar=false"""
    config = compose_config([*fixed.split(), *overrides])
    config["total_env_steps"] = 600
    if "learning_starts" in config["data"]:
        config["data"] |= {"learning_starts": 512, "batch_size": 8, "capacity": 4096}
    with tempfile.TemporaryDirectory() as directory:
        config["run_dir"] = f"{directory}/run"
        check_config(config)
        if run.train(config)["state"] != "ok":
            raise AssertionError(f"{policy} was interrupted")


def _env_of(policy: str, discrete: str = "cartpole", other: str = "pendulum", several: bool = False) -> list[str]:
    """Overrides for an environment whose actions the policy takes.

    `several`: whether it has several agents; algorithms for groups then learn for a group of them.
    """
    env = discrete if works(policy, "Discrete") else other
    if policy in FOR_GROUPS and env == "cartpole" and not several:
        return ["env=two_step_game"]
    return [f"env={env}", "env.group_agents=all" if several and policy in FOR_GROUPS else "env.group_agents=null"]


def _whole_run(*overrides: str, envs: tuple[str, str] | None = None, several: bool = False) -> Callable[[str], None]:
    """A run on its own experience; `envs` are a discrete environment and another, `several` is that of `_env_of`."""
    return lambda policy: _run(policy, *_env_of(policy, *(envs or ()), several=several), *online(policy), *overrides)


def _on_data(*overrides: str, several: bool = False) -> Callable[[str], None]:
    """A run on recorded data alone: those of PPO, or, for a group, of the policy's own run."""

    def tried(policy: str) -> None:
        env = [*_env_of(policy, several=several), *overrides]
        with tempfile.TemporaryDirectory() as data:
            _run(policy if policy in FOR_GROUPS else "ppo", *env, f"data.output={data}")
            _run(policy, *env, "data=offline", f"data.input={data}")

    return tried


FEATURES: dict[str, Callable[[str], None]] = {
    "Discrete": _case(VECTOR, DISCRETE),
    "MultiDiscrete": _case(VECTOR, spaces.MultiDiscrete([2, 3])),
    "MultiBinary": _case(VECTOR, spaces.MultiBinary(2)),
    "Box": _case(VECTOR, BOX),
    "Box, squashed": _case(VECTOR, BOX, custom_action_dist="SquashedGaussian"),
    "Dict, Tuple": _case(VECTOR, spaces.Dict({"a": DISCRETE, "b": spaces.Tuple((BOX, spaces.MultiBinary(2)))})),
    "autoregressive": _case(VECTOR, spaces.MultiDiscrete([2, 3]), custom_action_dist="Autoregressive"),
    "action mask": _case(MASKED, DISCRETE),
    "images": _case(IMAGE),
    "images in a Dict": _case(spaces.Dict({"image": IMAGE, "x": VECTOR})),
    "LSTM, GRU": _case(VECTOR, use_lstm=True, use_gru=False, lstm_cell_size=8, lstm_use_prev_action=True),
    "GTrXL": _case(VECTOR, use_lstm=False, use_gru=False, use_attention=True, attention_dim=8),
    "custom model and loss": _case(VECTOR, custom_model=Auxiliary),
    "parameter noise": _exploring("parameter_noise", random_timesteps=0),
    "soft Q": _exploring("soft_q"),
    "gSDE": _exploring("gsde"),
    "curiosity": _exploring("curiosity"),
    "RND": _exploring("rnd"),
    "hindsight": _whole_run("data=hindsight", envs=("bit_flipping", "point_reach")),
    "two ranks": _whole_run("trainer=ddp", "trainer.accelerator=cpu"),
    "bf16-mixed": _whole_run("trainer.precision=bf16-mixed"),
    "several agents": _whole_run("env.agents=2", several=True),
    "several agents, in turns with masks": _whole_run(envs=("connect_four", "connect_four"), several=True),
    "several agents, LSTM": _whole_run("env.agents=2", "model=lstm", "model.lstm_cell_size=8", several=True),
    "recorded data alone": _on_data(),
    "recorded data alone, several agents": _on_data("env.agents=2", several=True),
}
WHOLE_RUNS = ("hindsight", "two ranks", "bf16-mixed", "recorded data alone")
SLOW = (*WHOLE_RUNS, *(name for name in FEATURES if "several" in name))


def _learns(name: str, obs: Any, actions: Any, changes: dict[str, Any]) -> None:
    """Two iterations in an environment that refuses actions outside its space; what does not work raises."""
    keywords = fractions_to_env_steps(compose_config([f"policy={name}", "env=cartpole", "experiment=none"]))["policy"]
    keywords |= {**changes, "model": {**keywords["model"], "fcnet_hiddens": [16], **changes.get("model", {})}}
    del keywords["_target_"]
    if policy_class(name).acts_for_group:  # two members with these spaces
        obs, actions = spaces.Tuple([obs, obs]), spaces.Tuple([actions, actions])
    policy: Policy = policy_class(name)(obs, actions, **keywords).to(DEVICE)
    env = EnvCreator(AnySpaces, {"observation_space": obs, "action_space": actions}, check=False)
    how: dict[str, Any] = {"batch_mode": "complete_episodes", "fragment_length": 1} if policy.evolves else {}
    worker = RolloutWorker(env, policy, num_envs=2, vectorization="sync", **{"fragment_length": 12, **how})
    for _ in range(2):
        before = torch.cat([parameter.detach().flatten() for parameter in policy.parameters()])
        batch = evaluate_perturbations(worker, seeds=[3, 4, 5]).torch() if policy.evolves else worker.sample()
        metrics = policy.learn_on_batch(batch.to(DEVICE))
        after = torch.cat([parameter.detach().flatten() for parameter in policy.parameters()])
        if not np.isfinite(metrics["loss"]) or torch.equal(before, after):
            raise AssertionError(f"{name} did not learn: loss {metrics['loss']}")


def works(policy: str, feature: str) -> bool:
    """Whether two iterations run and learn; False if the policy refuses it."""
    try:
        FEATURES[feature](policy)
    except (UnsupportedSpaceError, ConfigError):
        return False
    return True


def page() -> str:
    """The page, as Markdown."""
    head = "| | " + " | ".join(POLICIES) + " |\n|---" + "|---" * len(POLICIES) + "|"
    rows = [
        "| " + " | ".join([feature, *("✓" if works(name, feature) else "–" for name in POLICIES)]) + " |"
        for feature in FEATURES
    ]
    return (
        "# Feature matrix\n\n"
        "Each cell was tried: two iterations of the algorithm in an environment with these spaces, or a short run. "
        "A dash is refused before training, with what would work instead. For qmix, vdn, pqn_vdn, independent_q, "
        "maddpg and matd3 the environment has two agents with these spaces.\n\n"
        f"{head}\n" + "\n".join(rows) + "\n\n"
        "Where fragments of several workers come in any order (`data=async`, which is IMPALA's and APPO's, and "
        "`data=apex`), curiosity and RND need `exploration.normalize=false`: the learner follows what they pay in each "
        "environment from one fragment to the next.\n\n"
        "`python scripts/regenerate.py --all` writes this page; a test holds it to that.\n"
    )
