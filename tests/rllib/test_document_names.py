"""Every row of docs/rllib_names.md is checked: what works as named works, and what has another name has that one."""

from __future__ import annotations

import functools
import inspect
import json
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
import torch
from torch import nn

from lightning_rl.rllib.__main__ import main
from lightning_rl.rllib.agents.callbacks import DefaultCallbacks
from lightning_rl.rllib.agents.dqn.dqn_torch_policy import QLoss
from lightning_rl.rllib.agents.ppo import PPOTrainer
from lightning_rl.rllib.agents.trainer_template import build_trainer
from lightning_rl.rllib.keys import translate_keys
from lightning_rl.rllib.models import MODEL_DEFAULTS, ActionDistribution, ModelCatalog
from lightning_rl.rllib.models.preprocessors import Preprocessor
from lightning_rl.rllib.models.torch.recurrent_net import RecurrentNetwork
from lightning_rl.rllib.models.torch.torch_action_dist import TorchCategorical
from lightning_rl.rllib.models.torch.torch_modelv2 import TorchModelV2
from lightning_rl.rllib.policy.policy import Policy
from lightning_rl.rllib.policy.sample_batch import SampleBatch
from lightning_rl.rllib.policy.torch_policy import TorchPolicy
from lightning_rl.rllib.policy_configs import defaults_of
from tests.rllib.document_names import ABSENT, NONE, SAME, Row, rows

SMALL: dict[str, Any] = {"train_batch_size": 64, "num_envs_per_worker": 2, "num_sgd_iter": 1}
got: dict[str, set[str]] = defaultdict(set)  # method of a user's class → parameters that it was called with
inputs: set[str] = set()  # of a model


def noted(owner: str) -> Callable[[Any], Any]:
    """A method whose parameters are noted when it is called."""

    def decorate(method: Any) -> Any:
        @functools.wraps(method)
        def call(*arguments: Any, **keywords: Any) -> Any:
            bound = inspect.signature(method).bind(*arguments, **keywords)
            got[f"{owner}.{method.__name__}"] |= bound.arguments.keys()
            return method(*arguments, **keywords)

        return call

    return decorate


class Model(TorchModelV2, nn.Module):
    @noted("TorchModelV2")
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        nn.Module.__init__(self)
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.logits, self.values = nn.Linear(4, num_outputs), nn.Linear(4, 1)

    @noted("TorchModelV2")
    def forward(self, input_dict, state, seq_lens):
        inputs.update(name for name in ("obs", "obs_flat", "prev_actions", "prev_rewards") if name in input_dict)
        inputs.update(["is_training"] if input_dict["is_training"] in (True, False) else [])
        self.seen = input_dict["obs_flat"]
        return self.logits(self.seen), state

    @noted("TorchModelV2")
    def value_function(self):
        return self.values(self.seen).squeeze(1)

    @noted("TorchModelV2")
    def custom_loss(self, policy_loss, loss_inputs):
        return policy_loss

    @noted("TorchModelV2")
    def metrics(self):
        return {}

    @noted("TorchModelV2")
    def get_initial_state(self):
        return []


class Remembers(RecurrentNetwork, nn.Module):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        nn.Module.__init__(self)
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.cell, self.logits, self.values = nn.GRU(4, 8, batch_first=True), nn.Linear(8, num_outputs), nn.Linear(8, 1)

    @noted("RecurrentNetwork")
    def get_initial_state(self):
        return [torch.zeros(8)]

    @noted("RecurrentNetwork")
    def forward_rnn(self, inputs, state, seq_lens):
        self.hidden, last = self.cell(inputs, state[0][None])
        return self.logits(self.hidden), [last[0]]

    def value_function(self):
        return self.values(self.hidden).flatten()


class Halves(Preprocessor):
    @noted("Preprocessor")
    def _init_shape(self, obs_space, options):
        return obs_space.shape

    @noted("Preprocessor")
    def transform(self, observation):
        return observation / 2


class Dist(ActionDistribution):
    @staticmethod
    @noted("ActionDistribution")
    def required_model_output_shape(action_space, model_config):
        return 2

    @noted("ActionDistribution")
    def __init__(self, inputs, model):
        super().__init__(inputs, model)
        self.dist = torch.distributions.Categorical(logits=inputs)

    @noted("ActionDistribution")
    def sample(self):
        return self.dist.sample()

    @noted("ActionDistribution")
    def logp(self, actions):
        return self.dist.log_prob(actions)

    @noted("ActionDistribution")
    def entropy(self):
        return self.dist.entropy()


class Callbacks(DefaultCallbacks):
    @noted("DefaultCallbacks")
    def on_episode_start(self, *, worker, base_env, policies, episode, env_index, **kwargs):
        assert worker.policy_map.keys() == policies.keys() and episode.length == 0

    @noted("DefaultCallbacks")
    def on_episode_step(self, *, worker, base_env, policies, episode, env_index, **kwargs): ...

    @noted("DefaultCallbacks")
    def on_episode_end(self, *, worker, base_env, policies, episode, env_index, **kwargs): ...

    @noted("DefaultCallbacks")
    def on_postprocess_trajectory(
        self, *, worker, episode, agent_id, policy_id, policies, postprocessed_batch, original_batches, **kwargs
    ): ...

    @noted("DefaultCallbacks")
    def on_sample_end(self, *, worker, samples, **kwargs): ...

    @noted("DefaultCallbacks")
    def on_learn_on_batch(self, *, policy, train_batch, result, **kwargs): ...

    @noted("DefaultCallbacks")
    def on_train_result(self, *, trainer, result, **kwargs): ...


class FromScratch(Policy):
    @noted("Policy")
    def __init__(self, observation_space, action_space, config):
        super().__init__(observation_space, action_space, config)
        self.w = 1.0

    @noted("Policy")
    def compute_actions(  # type: ignore[override]
        self,
        obs_batch,
        state_batches,
        prev_action_batch=None,
        prev_reward_batch=None,
        info_batch=None,
        episodes=None,
        **kwargs,
    ):
        return [self.action_space.sample() for _ in obs_batch], [], {}

    @noted("Policy")
    def learn_on_batch(self, samples):
        return {}

    @noted("Policy")
    def get_weights(self):
        return {"w": self.w}

    @noted("Policy")
    def set_weights(self, weights):
        self.w = weights["w"]


class ByGradients(Policy):
    def compute_actions(self, obs_batch, state_batches=None, **kwargs):  # type: ignore[override]
        return [0 for _ in obs_batch], [], {}

    @noted("Policy")
    def compute_gradients(self, postprocessed_batch):
        return [1.0], {}

    @noted("Policy")
    def apply_gradients(self, gradients): ...


class WithModel(TorchPolicy):
    @noted("TorchPolicy")
    def postprocess_trajectory(self, sample_batch, other_agent_batches=None, episode=None):
        return sample_batch

    @noted("TorchPolicy")
    def loss(self, model, dist_class, train_batch):
        outputs, _ = model(train_batch)
        return -dist_class(outputs, model).logp(train_batch[SampleBatch.ACTIONS]).mean()


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The objects that programs hold; all methods of the classes above have been called."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("runs"))
        for policy in (FromScratch, ByGradients, WithModel):
            trained: Any = build_trainer("Trained", default_policy=policy)(
                env="CartPole-v1", config={"train_batch_size": 64, "gamma": 0.9}
            )
            trained.train()
            trained.set_weights(trained.get_weights())
            trained.stop()
        ModelCatalog.register_custom_preprocessor("halves", Halves)
        ModelCatalog.register_custom_action_dist("dist", Dist)
        recurrent: Any = PPOTrainer(env="CartPole-v1", config={**SMALL, "model": {"custom_model": Remembers}})
        recurrent.train()
        recurrent.stop()
        model = {"custom_preprocessor": "halves", "custom_action_dist": "dist"}
        other: Any = PPOTrainer(env="CartPole-v1", config={**SMALL, "model": model})
        other.train()
        other.stop()
        config = {**SMALL, "model": {"custom_model": Model}, "callbacks": Callbacks}
        trainer: Any = PPOTrainer(env="CartPole-v1", config=config)
        trainer.train()
        policy: Any = trainer.get_policy()
        zeros: Any = torch.zeros(7, 3)
        yield {
            "trainer": trainer,
            "workers": trainer.workers,
            "worker": trainer.workers.local_worker(),
            "policy": policy,
            "model": policy.model,
            "dist": TorchCategorical(torch.zeros(1, 2)),
            "q_loss": QLoss(*zeros),
        }
        trainer.stop()


def find(path: str) -> Any:
    """The object at a path below `ray.rllib`, or below another package."""
    return resolve_name(path if path.split(".")[0] in ("torch", "lightning_rl") else f"lightning_rl.rllib.{path}")


FUNCTIONS = {"mixins": [], "name": "Made", "default_policy": "pg", "default_config": {}, "framework": "torch"}


def takes(path: str, parameter: str) -> bool:
    """Whether a function takes a parameter by its name: it has it, or is called with it."""
    function = find(path)
    parameters = inspect.signature(function).parameters
    if parameter in parameters:
        return parameters[parameter].kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    loss = {} if "build" not in path or "trainer" in path else {"loss_fn": lambda *arguments: torch.zeros(())}
    keywords = {"name": "Made", **loss, parameter: FUNCTIONS.get(parameter, lambda *arguments: {})}
    return isinstance(function(**keywords), type)


defaults_of_policy = functools.cache(defaults_of)


def accepts(name: str, key: str, value: Any) -> bool:
    """Whether a trainer's config takes a key with this value, and warns of nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*retired")
        translate_keys({key: value}, defaults_of_policy(name.lower()), {})
    return True


def runs(option: str) -> bool:
    """Whether the command `train` takes an option."""
    given = {"--run": "PPO", "--env": "CartPole-v1", "--config": json.dumps(SMALL), "--stop": '{"timesteps_total": 1}'}
    name, _, value = option.partition("=")
    main(["train", *(f"{key}={each}" for key, each in {**given, name: value}.items())])
    return True


def works(row: Row, held: dict[str, Any]) -> bool:
    """Whether a row is true, by its kind."""
    match row.kind:
        case "import":
            return find(row.other or row.subject) is not None
        case "parameter":
            return takes(row.subject, row.member)
        case "method":
            return row.member in got[row.subject]
        case "attribute":
            return hasattr(held[row.subject], row.member)
        case "key":
            return accepts(row.subject, row.member, row.value)
        case "model key":
            return MODEL_DEFAULTS[row.member] == row.value and accepts("PPO", "model", {row.member: row.value})
        case "constant":
            return getattr(SampleBatch, row.member) == row.value
        case "input":
            return row.member in inputs
        case "command":
            return runs(row.member)
        case "program":
            return (Path(__file__).parent / "listings" / f"{row.subject}.py").is_file()
    raise AssertionError(row)


@pytest.mark.filterwarnings("ignore:.*retired")
def test_every_row_is_true(held: dict[str, Any]) -> None:
    wrong: list[str] = []
    for row in rows():
        if row.status == NONE:
            continue
        try:
            if not works(row, held):
                wrong.append(f"{row.kind} {row.name}")
        except Exception as error:
            wrong.append(f"{row.kind} {row.name}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong)


def test_a_wrong_row_of_every_kind_is_found(held: dict[str, Any]) -> None:
    """Each check can fail."""
    wrong = [
        Row("import", "", "policy.policy.Polcy"),
        Row("parameter", "", "policy.policy.Policy.set_state", "states"),
        Row("parameter", "", "policy.torch_policy_template.build_torch_policy", "los_fn"),
        Row("method", "", "TorchPolicy.loss", "batch"),
        Row("attribute", "", "trainer", "worker"),
        Row("key", "", "PPO", "gama", 0.9),
        Row("key", "", "PPO", "log_level", "DEBUG"),
        Row("model key", "", "", "fcnet_hiddens", [64, 64]),
        Row("constant", "", "", "NEXT_OBS", "next_obs"),
        Row("input", "", member="observation"),
        Row("command", "", "train", "--algorithm=PPO"),
        Row("program", "", "test_walk_nowhere"),
    ]
    for row in wrong:
        try:
            found = works(row, held)
        except (Exception, SystemExit):
            found = False
        assert not found, row


def test_almost_every_name_is_the_same() -> None:
    share = Counter(row.status for row in rows())
    assert share[SAME] / share.total() >= 240 / 251


def test_every_listing_is_in_the_table() -> None:
    files = {file.stem for file in (Path(__file__).parent / "listings").glob("test_*.py")}
    assert files == {row.subject for row in rows() if row.kind == "program"}


@pytest.mark.parametrize("name", [name for names in ABSENT.values() for name in names])
def test_what_is_said_not_to_be_here_is_not(name: str) -> None:
    with pytest.raises((ImportError, AttributeError)):
        find(name)
