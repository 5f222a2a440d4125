"""What users plug in, by registration, import path or class, here and in worker processes; mistakes are named."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv

from lightning_rl import Algorithm, EnvContext, EnvCreator, ModelCatalog, Policy, RolloutWorker, register_env
from lightning_rl.cli import main
from lightning_rl.errors import ConfigError, EnvError, UnsupportedSpaceError
from lightning_rl.exploration import StochasticSampling
from lightning_rl.models.distributions import ActionDistribution
from lightning_rl.models.fully_connected import FullyConnectedNetwork
from lightning_rl.models.preprocessors import Preprocessor
from lightning_rl.models.q_model import QModel
from lightning_rl.models.recurrent import RecurrentNetwork
from lightning_rl.policies import PQN
from tests.families import ONE_PER_PIPELINE, each
from tests.shipped_policies import FOR_GROUPS, POLICIES, online, policy_class, takes

FOR_ONE_AGENT = [name for name in POLICIES if name not in FOR_GROUPS]  # others: test_group_q_model.py
SOON = [f"data.{key}" for key in ("learning_starts=100", "batch_size=4", "update_to_data_ratio=0.25")]


class Corridor(gym.Env[np.ndarray, int]):
    """Its observation is worker index, environment index, number of workers and length."""

    observation_space = spaces.Box(-100, 100, (4,), np.float32)

    def __init__(self, config: EnvContext) -> None:
        self.length = config.get("length", 5)
        self.action_space = spaces.Box(0.0, 1.0, (1,)) if config.get("continuous", False) else spaces.Discrete(2)
        place = (config.worker_index, config.vector_index, config.num_workers, self.length)
        self.place = np.array(place, dtype=np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return self.place, {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.t += 1
        return self.place, float(np.sum(action)), self.t == self.length, False, {}


class Doubling(Preprocessor):
    def _init_shape(self, obs_space: Any, options: dict[str, Any]) -> tuple[int, ...]:
        return (2 * obs_space.shape[0],)

    def transform(self, observation: Any) -> np.ndarray:
        return np.concatenate([observation, 2 * observation])


class Wide(FullyConnectedNetwork):
    def __init__(self, obs_space: Any, action_space: Any, num_outputs: int, *, width: int = 3, **keywords: Any) -> None:
        super().__init__(obs_space, action_space, num_outputs, fcnet_hiddens=[width], **keywords)
        self.width = width


class Tempered(ActionDistribution):
    """A categorical distribution at twice the temperature, with one useless output."""

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Any = None) -> int:
        return int(action_space.n) + 1

    def __init__(self, inputs: torch.Tensor, model: Any) -> None:
        super().__init__(inputs, model)
        self.dist = torch.distributions.Categorical(logits=inputs[:, 1:] / 2)

    def sample(self) -> Any:
        self.last = self.dist.sample()
        return self.last

    def deterministic_sample(self) -> Any:
        self.last = self.inputs[:, 1:].argmax(dim=1)
        return self.last

    def logp(self, actions: Any) -> torch.Tensor:
        return self.dist.log_prob(actions)

    def sampled_action_logp(self) -> torch.Tensor:
        return self.logp(self.last)

    def entropy(self) -> torch.Tensor:
        return self.dist.entropy()

    def kl(self, other: Any) -> torch.Tensor:
        return torch.distributions.kl_divergence(self.dist, other.dist)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that are gone again after each test."""
    from lightning_rl.envs import registry

    monkeypatch.setattr(registry, "_CREATORS", {})
    for name in ("_models", "_dists", "_preprocessors"):
        monkeypatch.setattr(ModelCatalog, name, dict(getattr(ModelCatalog, name)))
    register_env("corridor", lambda context: Corridor(context))
    ModelCatalog.register_custom_model("wide", Wide)
    ModelCatalog.register_custom_action_dist("tempered", Tempered)
    ModelCatalog.register_custom_preprocessor("doubling", Doubling)


def continuous(name: str) -> bool:
    """Whether an algorithm takes no discrete actions."""
    return not takes(name, "Discrete")


def algorithm(policy: Any, env: Any, path: Path, /, *overrides: str, **config: Any) -> Algorithm:
    """One that, if it replays, learns in its first iteration."""
    small = ["experiment=none", "workers.envs_per_worker=4", "workers.fragment_length=16"]
    shipped = policy_class(policy) if policy in POLICIES else None
    if getattr(shipped, "off_policy", False):
        small += [*SOON, "data.fragments_per_iteration=10"]
    if getattr(shipped, "evolves", False):
        small += ["workers.fragment_length=1", "data.directions=2", "policy.observation_filter=none"]
    if shipped:
        small += online(policy)
    return Algorithm(policy, env, overrides=[f"run_dir={path}", *small, *overrides], config=config)


# -- environments -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "creator", [lambda: gym.make("CartPole-v1"), lambda config: gym.make("CartPole-v1", **config), CartPoleEnv]
)
def test_creators_take_a_context_keywords_or_no_argument(creator: Any) -> None:
    assert EnvCreator(creator).make_single().action_space == spaces.Discrete(2)


def test_the_context_has_the_index_of_the_worker_and_of_the_environment(tmp_path: Path) -> None:
    creator = EnvCreator("corridor", {"length": 3})
    policy = algorithm("ppo", "corridor", tmp_path).policy
    worker = RolloutWorker(creator, policy, num_envs=2, worker_index=4, logical_workers=6, fragment_length=4)
    assert worker.sample().obs[0].tolist() == [[4, 0, 6, 3], [4, 1, 6, 3]]


@pytest.mark.parametrize("name", each(POLICIES, default=(*ONE_PER_PIPELINE, "qmix")))
def test_a_registered_environment_trains(name: str, tmp_path: Path) -> None:
    agents = 2 if name in FOR_GROUPS else None
    env = {"kwargs": {"length": 2, "continuous": continuous(name)}, "agents": agents}
    trained = algorithm(name, "corridor", tmp_path, env=env)
    result = trained.train()
    assert result["rollout/ep_len_mean"] == 2.0
    trained.stop()


def test_a_class_goes_as_an_environment_with_a_config(tmp_path: Path) -> None:
    trained = algorithm("ppo", Corridor, tmp_path, "env.kwargs.length=4")
    assert trained.train()["rollout/ep_len_mean"] == 4.0
    trained.stop()


def test_a_registered_name_travels_with_its_creator(monkeypatch: pytest.MonkeyPatch) -> None:
    from lightning_rl.envs import registry

    sent = cloudpickle.dumps(EnvCreator("corridor", {"length": 3}))
    monkeypatch.setattr(registry, "_CREATORS", {})
    arrived = pickle.loads(sent)
    assert arrived.make_single().unwrapped.length == 3 and arrived.name == "corridor"


@pytest.mark.process
def test_a_registered_environment_runs_in_async_vector_processes(tmp_path: Path) -> None:
    asynchronous = ("workers.vectorization=async", "workers.envs_per_worker=2", "evaluation.episodes=1")
    trained = algorithm("ppo", "corridor", tmp_path, *asynchronous)
    assert trained.train()["rollout/ep_len_mean"] == 5.0
    trained.stop()


# -- models, distributions, preprocessors -----------------------------------------------------------------------------
@pytest.mark.parametrize("name", each(FOR_ONE_AGENT))
def test_registered_pieces_go_with_every_algorithm(name: str, tmp_path: Path) -> None:
    """But a distribution of their own with those alone that sample actions and learn from their probability."""
    pieces: dict[str, Any] = {"custom_model": "wide", "custom_preprocessor": "doubling"}
    samples = not (policy_class(name).off_policy or issubclass(policy_class(name), PQN))
    if samples:
        pieces["custom_action_dist"] = "tempered"
    env = {"kwargs": {"continuous": continuous(name)}}
    trained = algorithm(name, "corridor", tmp_path, model={**pieces, "custom_model_config": {"width": 5}}, env=env)
    model = trained.policy.model
    while isinstance(model, QModel | RecurrentNetwork):
        model = model.wrapped
    assert isinstance(model, Wide) and model.width == 5 and model.preprocessor.size == 8
    assert model.num_outputs == 3 or not samples
    before = [p.detach().clone() for p in model.parameters()]
    trained.train()
    assert any(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
    obs = np.ones((1, 4), np.float32)
    np.testing.assert_array_equal(trained.policy.flat_observations(torch.from_numpy(obs)), [[1, 1, 1, 1, 2, 2, 2, 2]])
    trained.stop()


def test_a_distribution_that_q_values_or_soft_values_cannot_use_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="custom_action_dist reads 3"):
        algorithm("dqn", "CartPole-v1", tmp_path, model={"custom_action_dist": "tempered"})
    trained = algorithm("sac", "CartPole-v1", tmp_path, model={"custom_action_dist": "tempered"})
    with pytest.raises(UnsupportedSpaceError, match="probabilities"):
        trained.train()
    trained.stop()


@pytest.mark.parametrize("name", each(FOR_ONE_AGENT, default=("ppo", "dqn", "es")))
def test_a_custom_preprocessor_feeds_the_built_in_model_of_every_algorithm(name: str, tmp_path: Path) -> None:
    env = {"kwargs": {"continuous": continuous(name)}}
    trained = algorithm(name, "corridor", tmp_path, model={"custom_preprocessor": Doubling}, env=env)
    assert next(iter(trained.policy.model.parameters())).shape[-1] == 8
    trained.train()
    path = trained.save()
    trained.stop()
    assert Policy.load(str(path)).model.preprocessor.size == 8


def test_a_model_with_a_model_config_keyword_gets_it(tmp_path: Path) -> None:
    class Asks(Wide):
        def __init__(self, obs_space: Any, action_space: Any, num_outputs: int, model_config: Any, name: str) -> None:
            super().__init__(obs_space, action_space, num_outputs, width=model_config["custom_model_config"]["size"])
            self.given = (name, model_config["max_seq_len"])

    ModelCatalog.register_custom_model("asks", Asks)
    model = {"custom_model": "asks", "custom_model_config": {"size": 7}, "max_seq_len": 9}
    found: Any = algorithm("ppo", "CartPole-v1", tmp_path, model=model).policy.model
    assert found.width == 7 and found.given == ("asks", 9)


def test_an_exploration_class_may_be_passed_directly(tmp_path: Path) -> None:
    class Mine(StochasticSampling):
        pass

    assert isinstance(algorithm("ppo", "CartPole-v1", tmp_path, exploration={"type": Mine}).policy.exploration, Mine)


@pytest.mark.ray
def test_registrations_reach_worker_processes(tmp_path: Path) -> None:
    pieces = {"custom_model": "wide", "custom_action_dist": "tempered", "custom_preprocessor": "doubling"}
    trained = algorithm("ppo", "corridor", tmp_path, "workers.num_workers=2", model=pieces)
    result = trained.train()
    assert result["rollout/ep_len_mean"] == 5.0
    trained.stop()


@pytest.mark.ray
def test_registrations_reach_actors_made_by_hand() -> None:
    import ray

    from lightning_rl.policies import PPO

    config = {"model": {"custom_model": "wide"}}
    actor = RolloutWorker.as_remote().remote("corridor", PPO, policy_config=config, fragment_length=6)
    assert ray.get(actor.sample.remote()).obs.shape[1] == 4


# -- mistakes ---------------------------------------------------------------------------------------------------------
class NoLoss(Policy):
    pass


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["policy=nowhere.policies:Mine"], "there is no module 'nowhere'"),
        ([f"policy={__name__}:Min"], "has no attribute 'Min'"),
        ([f"policy={__name__}:Corridor"], "expected a subclass of lightning_rl.Policy"),
        ([f"policy={__name__}:NoLoss"], "NoLoss defines neither loss(batch) -> (scalar, metrics) nor"),
        ([f"policy={__name__}:NoLoss", "policy.los=1"], "no key 'policy.los'"),
        (["policy=poo"], "Did you mean 'ppo'"),
        (["env.id=coridor"], "not a registered environment. Did you mean 'corridor'"),
        (["env.id=nowhere:Env"], "there is no module 'nowhere'"),
        ([f"env.id={__name__}:Doubling"], "environment"),
        (["model.custom_model=wid"], "neither registered"),
        ([f"model.custom_model={__name__}:Corridor"], "expected a subclass of lightning_rl.models.model.Model"),
        (["model.custom_model=wide", "model.custom_model_config.widht=3"], "unexpected keyword argument 'widht'"),
        (["model.custom_action_dist=nowhere:Dist"], "there is no module 'nowhere'"),
        ([f"model.custom_preprocessor={__name__}:Wide"], "expected a subclass of lightning_rl.models.preprocessors"),
        (["exploration.type=nowhere:Mine"], "there is no module 'nowhere'"),
        ([f"exploration.type={__name__}:Wide"], "expected a subclass of lightning_rl.exploration"),
    ],
)
def test_errors_name_the_missing_method_in_one_line(
    overrides: list[str], message: str, tmp_path: Path, capsys: Any
) -> None:
    code = main(["train", *overrides, f"run_dir={tmp_path / 'run'}", "total_env_steps=10"])
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert code == 2 and message in line


def test_registering_an_invalid_class_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="subclass"):
        ModelCatalog.register_custom_model("wrong", torch.nn.Linear)  # type: ignore[arg-type]
    with pytest.raises(EnvError, match=r"made a int.*gymnasium\.Env"):
        EnvCreator(lambda config: 3).make_single()
