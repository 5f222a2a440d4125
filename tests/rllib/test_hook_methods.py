"""Methods of RLlib's that a class derived from `PPOTorchPolicy` may define, as its policies do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from lightning_rl.errors import ConfigError
from lightning_rl.models import ModelCatalog
from lightning_rl.rllib.agents.dqn import DQNTorchPolicy, DQNTrainer
from lightning_rl.rllib.agents.ppo import PPOTorchPolicy, PPOTrainer
from lightning_rl.rllib.models.torch.torch_action_dist import TorchCategorical
from tests.envs.classic_control import CARTPOLE
from tests.rollouts.small_worker import small_worker

PPOBase: Any = PPOTorchPolicy
DQNBase: Any = DQNTorchPolicy


class Hooked(PPOBase):
    """All of them, each of which calls that of its base."""

    def make_model(self):
        self.asked_for = self.config["model"]["fcnet_hiddens"]
        model = super().make_model()
        model.mine = True
        return model

    def optimizer(self):
        return [torch.optim.SGD(self.model.parameters(), lr=self.config["lr"], momentum=0.5)]

    def extra_action_out(self, input_dict, state_batches, model, action_dist):
        columns = super().extra_action_out(input_dict, state_batches, model, action_dist)
        return {**columns, "values": model.value_function(), "first": input_dict["obs"][:, 0]}

    def extra_grad_process(self, optimizer, loss):
        norm = torch.stack([parameter.grad.square().sum() for parameter in self.model.parameters()]).sum().sqrt()
        return {**super().extra_grad_process(optimizer, loss), "own_norm": norm, "own_loss": loss.detach()}

    def extra_grad_info(self, train_batch):
        stats = super().extra_grad_info(train_batch)
        return {"rows": float(train_batch.count), "twice": 2 * stats["policy_loss"]}

    def extra_compute_grad_fetches(self):
        return {"four_times": 2 * super().extra_compute_grad_fetches()["twice"]}


class Further(Hooked):
    """A class of such a class, with a loss in RLlib's form."""

    def loss(self, model, dist_class, train_batch):
        return super().loss(model, dist_class, train_batch) + 1.0

    def extra_action_out(self, input_dict, state_batches, model, action_dist):
        columns = super().extra_action_out(input_dict, state_batches, model, action_dist)
        return {"first": columns["first"], "doubled": 2 * columns["values"]}

    def stats_fn(self, train_batch):
        return {"three_times": 1.5 * super().stats_fn(train_batch)["twice"]}


@pytest.mark.parametrize("cls", [Hooked, Further])
def test_each_method_of_rllib_s_that_a_class_defines_is_called(cls: Any) -> None:
    policy = cls(*CARTPOLE.spaces(), {"lr": 0.5, "model": {"fcnet_hiddens": [6]}}, minibatches=1, passes=1)
    assert policy.asked_for == [6] and policy.model.mine and "_default_model" not in vars(policy)
    fragment = small_worker(policy).sample()
    np.testing.assert_allclose(fragment["first"], fragment.obs[:-1, :, 0])
    name, factor = ("values", 1) if cls is Hooked else ("doubled", 2)
    assert_close(fragment[name], factor * policy.values(fragment.obs[:-1]))
    found = policy.learn_on_batch(fragment)
    assert found["own_norm"] == pytest.approx(found["grad_norm"]) and found["own_loss"] == pytest.approx(found["loss"])
    assert found["rows"] == fragment.valid.sum() and found["twice"] == pytest.approx(2 * found["policy_loss"])
    assert found["four_times"] == pytest.approx(4 * found["policy_loss"])
    assert cls is Hooked or found["three_times"] == pytest.approx(3 * found["policy_loss"])
    (group,) = policy.learner.optimizer.torch_optimizer.param_groups
    assert (group["momentum"], group["lr"]) == (0.5, 0.5)


def test_functions_are_added_to_the_methods_of_their_base() -> None:
    seen: list[Any] = []
    cls: Any = Hooked.with_updates("WithFunctions", after_init=lambda policy: seen.append(policy.config["lr"]))
    later: Any = cls.with_updates("Later", extra_grad_process_fn=lambda policy, optimizer, loss: {"by_function": 1.0})
    policy = later(*CARTPOLE.spaces(), lr=0.5)
    found = policy.learn_on_batch(small_worker(policy).sample())
    assert seen == [0.5] and found["by_function"] == 1.0 and "own_norm" not in found
    assert policy.learner.optimizer.torch_optimizer.param_groups[0]["momentum"] == 0.5


class OwnNetwork(PPOBase):
    """A model of the catalog's, and the base's optimizer."""

    def make_model(self):
        return ModelCatalog.get_model(self.observation_space, self.action_space, 2, {"fcnet_hiddens": [3]})

    def optimizer(self):
        return super().optimizer()


class NoModel(DQNBase):
    def make_model(self):
        return torch.nn.Linear(4, 2)


def test_make_model_replaces_the_network_and_must_return_a_model() -> None:
    policy: Any = OwnNetwork(*CARTPOLE.spaces(), {"lr": 0.01})
    before = [parameter.detach().clone() for parameter in policy.model.parameters()]
    assert before[0].shape == (3, 4)
    metrics = policy.learn_on_batch(small_worker(policy).sample())
    assert metrics["lr"] == 0.01
    assert not any(map(torch.equal, before, policy.model.parameters()))
    with pytest.raises(ConfigError, match="make_model returned Linear"):
        NoModel(*CARTPOLE.spaces())


class Schedule:
    """A mixin of RLlib's kind: a value that follows the steps of training."""

    def on_global_var_update(self, global_vars):
        super().on_global_var_update(global_vars)  # type: ignore[misc]
        self.halved = 1.0 if global_vars["timestep"] < 64 else 0.5


class Following(Schedule, PPOTorchPolicy):
    pass


class Reversed(PPOTorchPolicy):
    """Acts by the distribution of negated outputs."""

    def action_distribution_fn(self, model, *, obs_batch, state_batches, **keywords):
        assert keywords.keys() == {"explore", "timestep", "is_training", "seq_lens"}
        outputs, states = model(obs_batch, state_batches, None)
        return -1e6 * outputs, TorchCategorical, states


class Sampling(PPOTorchPolicy):
    """Takes action 1 with certainty."""

    def action_sampler_fn(self, model, *, obs_batch, state_batches, **keywords):
        rows = len(obs_batch["obs"])
        return torch.ones(rows, dtype=torch.int64), torch.zeros(rows), state_batches


class BeforeEvaluations(PPOTrainer):
    before = 0

    def _before_evaluate(self):
        self.before += 1


def test_policies_follow_the_steps_of_training_by_on_global_var_update() -> None:
    trainer: Any = PPOTrainer.with_updates(default_policy=Following)(env="CartPole-v1", config={"train_batch_size": 40})
    halved = []
    for _ in range(2):
        trainer.train()
        halved.append(trainer.get_policy().halved)
    trainer.stop()
    assert halved == [1.0, 0.5]


def test_methods_action_distribution_fn_and_action_sampler_fn_decide_what_is_sampled() -> None:
    policy: Any = Reversed(*CARTPOLE.spaces(), {})
    obs = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    with torch.no_grad():
        outputs, _ = policy.model({"obs": torch.from_numpy(obs), "obs_flat": torch.from_numpy(obs)}, [], None)
    assert policy.compute_actions(obs)[0].tolist() == outputs.argmin(1).tolist()
    assert Sampling(*CARTPOLE.spaces(), {}).compute_actions(obs)[0].tolist() == [1] * 8


def test_a_trainer_s_before_evaluate_is_called_before_each_evaluation() -> None:
    trainer: Any = BeforeEvaluations(env="CartPole-v1", config={"train_batch_size": 40, "evaluation_duration": 1})
    trainer.evaluate(), trainer.evaluate()
    trainer.stop()
    assert trainer.before == 2


# -- what replay buffers store ----------------------------------------------------------------------------------------
def shaped(policy, sample_batch, other_agent_batches=None, episode=None):
    """A reward of 10, and −1 where an episode ends; with a column that no buffer stores."""
    assert episode is not None and sample_batch["new_obs"].shape == sample_batch["obs"].shape
    sample_batch["rewards"] = np.where(sample_batch["dones"], -1.0, 10.0).astype(np.float32)
    sample_batch["more"] = sample_batch["rewards"]
    return sample_batch


class Shaping(DQNBase):
    def postprocess_trajectory(self, sample_batch, other_agent_batches=None, episode=None):
        return shaped(self, super().postprocess_trajectory(sample_batch), other_agent_batches, episode)


class Leaving(DQNBase):
    def postprocess_trajectory(self, sample_batch, other_agent_batches=None, episode=None):
        return sample_batch[1:]


@pytest.mark.parametrize("policy", [Shaping, DQNTorchPolicy.with_updates("ByFunction", postprocess_fn=shaped)])
@pytest.mark.parametrize("n_step", [1, 3])
def test_a_replay_policy_s_own_postprocessing_changes_what_is_stored(policy: Any, n_step: int) -> None:
    """γ = ½: three steps have 10 + 5 + 2.5, and less where an episode ends.

    The rewards of the environment are all 1.
    """
    keys = {"learning_starts": 200, "train_batch_size": 200, "rollout_fragment_length": 8, "gamma": 0.5}
    keys |= {"timesteps_per_iteration": 400, "n_step": n_step, "lr": 0.0}
    made: Any = DQNTrainer.with_updates(default_policy=policy)(env="CartPole-v1", config=keys)
    made.train()
    rewards = made.local_replay_buffer.replay()["rewards"]
    made.stop()
    whole = {10.0, -1.0} if n_step == 1 else {17.5, 14.75, 9.5, -1.0}
    assert whole <= set(rewards.tolist()) <= whole | {10.0, 15.0}  # the newest rows have fewer steps after them


def test_postprocessing_that_leaves_rows_out_is_refused_where_they_are_stored() -> None:
    keys = {"rollout_fragment_length": 8}
    made: Any = DQNTrainer.with_updates(default_policy=Leaving)(env="CartPole-v1", config=keys)
    with pytest.raises(ConfigError, match="made 7 rows of 8"):
        made.train()
    made.stop()


class Named(PPOBase):
    def __init__(self, o, a, c):
        super().__init__(o, a, c)
        self.own_lr = c["lr"]


def test_the_third_argument_of_a_constructor_is_the_config_whatever_it_is_called() -> None:
    trainer = PPOTrainer.with_updates(default_policy=Named)(config={"lr": 2e-4, "num_workers": 0}, env="CartPole-v1")
    assert trainer.get_policy().own_lr == 2e-4
    trainer.stop()
