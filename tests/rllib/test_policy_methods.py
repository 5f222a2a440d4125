"""RLlib's methods of policies, its policies from scratch, its losses as functions and its mixins."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.testing import assert_close

from lightning_rl import Policy as OwnPolicy
from lightning_rl.errors import ConfigError
from lightning_rl.policies import DQN, PPO
from lightning_rl.rllib.agents.dqn import DQNTrainer
from lightning_rl.rllib.agents.dqn.dqn_torch_policy import PRIO_WEIGHTS, DQNTorchPolicy, QLoss, build_q_losses
from lightning_rl.rllib.agents.ppo import PPOTorchPolicy, PPOTrainer
from lightning_rl.rllib.agents.ppo.ppo_torch_policy import KLCoeffMixin, ValueNetworkMixin
from lightning_rl.rllib.agents.trainer_template import build_trainer
from lightning_rl.rllib.policy import Policy, TorchPolicy
from lightning_rl.rllib.policy.policy_template import build_policy_class
from lightning_rl.rllib.policy.sample_batch import SampleBatch
from lightning_rl.rllib.policy.torch_policy import EntropyCoeffSchedule, LearningRateSchedule
from lightning_rl.rllib.utils import add_mixins
from lightning_rl.rollouts import RolloutWorker
from tests.envs.classic_control import CARTPOLE
from tests.models.parameters import parameter_vector
from tests.rollouts.small_worker import small_worker

LSTM = {"use_lstm": True, "lstm_cell_size": 8, "lstm_use_prev_action": True}
OBS = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def built(**config: Any) -> Any:
    return PPOTorchPolicy(*CARTPOLE.spaces(), config)


# -- acting -----------------------------------------------------------------------------------------------------------
def test_compute_actions_takes_rllib_s_arguments_and_returns_arrays() -> None:
    actions, states, extra = built().compute_actions(
        obs_batch=OBS, state_batches=None, info_batch=[{}] * 3, episodes=None
    )
    assert isinstance(actions, np.ndarray) and actions.shape == (3,) and states == []
    assert set(extra) == {"vf_preds", "action_dist_inputs", "action_logp", "action_prob"}
    logits = extra["action_dist_inputs"] - np.log(np.exp(extra["action_dist_inputs"]).sum(1, keepdims=True))
    np.testing.assert_allclose(logits[np.arange(3), actions], extra["action_logp"], rtol=1e-5)
    np.testing.assert_allclose(extra["action_prob"], np.exp(extra["action_logp"]))
    greedy = built().compute_actions(OBS, explore=False)[0]
    assert np.array_equal(built().compute_actions(list(OBS), explore=False)[0], greedy)
    policy = built(explore=False)
    assert policy.config["explore"] is False and np.array_equal(policy.compute_actions(OBS)[0], greedy)


def test_states_and_earlier_actions_go_in_and_out_as_arrays() -> None:
    policy = built(model=LSTM)
    initial = policy.get_initial_state()
    assert [part.shape for part in initial] == [(8,), (8,)]
    states = [np.stack([part] * 3) for part in initial]
    before = {"prev_action_batch": np.array([0, 1, 1]), "prev_reward_batch": np.zeros(3, np.float32)}
    actions, after, extra = policy.compute_actions(OBS, states, **before, explore=False)
    inputs = {"obs": OBS, "prev_actions": np.array([0, 1, 1]), "prev_rewards": np.zeros(3, np.float32)}
    inputs |= {"state_in_0": states[0], "state_in_1": states[1]}
    again = policy.compute_actions_from_input_dict(SampleBatch(inputs), explore=False)
    assert_close(again[1], after) and np.array_equal(again[0], actions)
    action, one, _ = policy.compute_single_action(OBS[0], initial, prev_action=0, prev_reward=0.0, explore=False)
    assert action == actions[0]
    np.testing.assert_allclose(one[0], after[0][0], atol=1e-6)
    logp = policy.compute_log_likelihoods(actions, OBS, states, before["prev_action_batch"])
    assert_close(logp, torch.from_numpy(extra["action_logp"]))


def test_a_single_action_comes_in_a_tuple_and_explores_as_the_config_says() -> None:
    policy = built()
    policy.seed_exploration(0)
    drawn = {int(policy.compute_single_action(OBS[0], info={}, episode=None, timestep=0)[0]) for _ in range(50)}
    assert drawn == {0, 1}
    answers = {int(policy.compute_single_action(OBS[0], explore=False)[0]) for _ in range(20)}
    row = SampleBatch(obs=OBS[:1])
    assert len(answers) == 1 and policy.compute_single_action(input_dict=row, explore=False)[0] in answers
    assert policy.compute_single_action(OBS[0], explore=False, full_fetch=False) in answers


class Halves(PPOTorchPolicy):
    """PPO that acts by a rule of its own."""

    def compute_actions(self, obs_batch, state_batches=None, prev_action_batch=None, **kwargs):
        actions, states, info = super().compute_actions(obs_batch, state_batches, **kwargs)
        return [1 for _ in actions], states, {**info, "mine": np.arange(len(obs_batch))}


def test_a_class_s_own_compute_actions_is_what_workers_record() -> None:
    fragment = small_worker(Halves(*CARTPOLE.spaces())).sample()
    assert fragment.actions.unique().tolist() == [1] and fragment["mine"][0].tolist() == [0, 1, 2, 3]
    assert np.isfinite(Halves(*CARTPOLE.spaces()).learn_on_batch(fragment)["loss"])


# -- names ------------------------------------------------------------------------------------------------------------
def test_what_rllib_calls_things(tmp_path: Path) -> None:
    policy: Any = DQNTorchPolicy(*CARTPOLE.spaces(), {"exploration_config": {"type": "EpsilonGreedy"}})
    policy.on_global_var_update({"timestep": 7})
    assert policy.global_timestep == policy.env_steps == 7
    policy.global_timestep = 0
    assert policy.get_exploration_info() == policy.get_exploration_state() == {"epsilon": 1.0}
    assert type(policy._create_exploration()) is type(policy.exploration)
    assert policy.model_gpu_towers == [policy.model] and policy.action_space_struct == policy.action_space
    nested = PPOTorchPolicy(spaces.Box(-1, 1, (2,)), spaces.Dict(a=spaces.Tuple([spaces.Discrete(2)])))
    assert nested.action_space_struct == {"a": (spaces.Discrete(2),)}
    assert (policy.export_model(str(tmp_path)), (tmp_path / "policy.pt").exists())[1]
    with pytest.raises(ConfigError, match=r"model\.h5.*set_weights"):
        policy.import_model_from_h5("model.h5")


def test_the_config_has_rllib_s_keys_of_policy_and_trainer_and_goes_with_a_checkpoint(tmp_path: Path) -> None:
    trainer = PPOTrainer(env="CartPole-v1", config={"train_batch_size": 64, "clip_param": 0.25, "num_sgd_iter": 1})
    config = trainer.policy.config  # type: ignore[attr-defined]
    found = [config[key] for key in ("clip_param", "train_batch_size", "observation_filter", "num_workers", "lambda")]
    assert found == [0.25, 64, "NoFilter", 0, 0.95]
    again: Any = OwnPolicy.load(trainer.save(tmp_path / "policy.ckpt"))
    trainer.stop()
    assert again.config["train_batch_size"] == 64 and again.clip == 0.25


def test_losses_and_hooks_read_coefficients_optimizers_and_the_trainer_s_keys() -> None:
    """β of the KL penalty, and the entropy's weight and the learning rate at half of their schedules of 100 steps."""
    keys = {"kl_coeff": 0.25, "entropy_coeff_schedule": [[0, 0.5], [100, 0.0]], "lr_schedule": [[0, 0.2], [100, 0.0]]}
    trainer: Any = PPOTrainer(env="CartPole-v1", config={"train_batch_size": 64, "sgd_minibatch_size": 16, **keys})
    policy = trainer.get_policy()
    policy.global_timestep = 50
    assert (policy.kl_coeff, policy.entropy_coeff, policy.cur_lr) == (0.25, 0.25, pytest.approx(0.1))
    assert policy._optimizers == [policy.learner.optimizer.torch_optimizer] and policy.framework == "torch"
    names = ("sgd_minibatch_size", "num_gpus", "worker_index", "use_gae", "simple_optimizer")
    assert [policy.config[name] for name in names] == [16, 0, 0, True, True]
    assert policy.config["multiagent"]["policies"] == {} and policy.config["kl_coeff"] == 0.25
    trainer.stop()
    assert policy.is_recurrent() is False and not policy.is_recurrent and built(model=LSTM).is_recurrent() is True
    with pytest.raises(AttributeError, match="entropy_coef"):
        _ = DQNTorchPolicy(*CARTPOLE.spaces()).entropy_coeff


def test_coefficients_and_learning_rates_that_a_callback_sets_are_those_of_the_next_steps() -> None:
    keys = {"train_batch_size": 64, "num_sgd_iter": 1, "kl_coeff": 0.25, "entropy_coeff_schedule": [[0, 0.1], [9, 0.0]]}
    trainer: Any = PPOTrainer(env="CartPole-v1", config=keys)
    policy = trainer.get_policy()
    policy.kl_coeff, policy.entropy_coeff, policy.cur_lr = 16, 1e6, 0.0625
    before = policy.get_weights()
    learned = trainer.train()["info"]["learner"]["default_policy"]["learner_stats"]
    trainer.stop()
    assert learned["cur_lr"] == policy.cur_lr == 0.0625 and learned["cur_kl_coeff"] == 16
    assert policy.entropy_coeff == 1e6 and learned["total_loss"] < -1e5  # −10⁶ × an entropy of about 0.69
    moved = max(float(abs(after - before[name]).max()) for name, after in policy.get_weights().items())
    assert moved > 0.05  # Adam's first step is about the learning rate
    plain = PPOTorchPolicy(*CARTPOLE.spaces(), {"kl_coeff": 0.0})
    plain.kl_coeff = 0.0
    with pytest.raises(ConfigError, match=r"kl_coeff=0\.5"):
        plain.kl_coeff = 0.5


@pytest.mark.parametrize(("keys", "kept"), [({"lr": 1e-2}, True), ({"lr_schedule": [[0, 1e-2], [9999, 1e-3]]}, False)])
def test_a_rate_that_is_assigned_to_the_optimizer_stays_unless_there_is_a_schedule(
    keys: dict[str, Any], kept: bool
) -> None:
    """As in RLlib, whose schedule overwrites it and whose "cur_lr" stays what it was."""
    trainer: Any = PPOTrainer(env="CartPole-v1", config={"train_batch_size": 64, "num_sgd_iter": 1, **keys})
    for assigned in (1e-6, 1e-7):  # before the first iteration, and behind it
        policy = trainer.get_policy()
        policy._optimizers[0].param_groups[0]["lr"] = assigned
        before = parameter_vector(policy.model)
        learned = trainer.train()["info"]["learner"]["default_policy"]["learner_stats"]
        moved = (parameter_vector(policy.model) - before).abs().max()
        assert (moved < 2e-5) == (policy._optimizers[0].param_groups[0]["lr"] == pytest.approx(assigned)) == kept
        assert learned["cur_lr"] == pytest.approx(1e-2, rel=0.02)
    trainer.stop()


def test_td_errors_of_transitions_are_those_of_the_loss() -> None:
    """Linear by hand: Q(s, a) − (r + γ² maxₐ Q_target(s')), and without what follows where an episode ended."""
    policy: Any = DQNTorchPolicy(*CARTPOLE.spaces(), {"gamma": 0.5, "n_step": 2})
    actions, rewards, done = np.array([0, 1, 1]), np.array([1.0, 2.0, 3.0], np.float32), np.array([0.0, 0.0, 1.0])
    errors = policy.compute_td_error(OBS, actions, rewards, -OBS, done, np.ones(3, np.float32))
    with torch.no_grad():
        taken = policy.q_model({"obs": torch.from_numpy(OBS), "obs_flat": torch.from_numpy(OBS)}, [], None)[0]
        best = policy.target_model({"obs": torch.from_numpy(-OBS), "obs_flat": torch.from_numpy(-OBS)}, [], None)[0]
    following = 0.25 * best.amax(1) * torch.tensor([1.0, 1.0, 0.0])
    assert_close(errors, taken[range(3), actions] - torch.from_numpy(rewards) - following)
    with pytest.raises(ConfigError, match="no TD errors"):
        built().compute_td_error(OBS, actions, rewards, -OBS, done, np.ones(3, np.float32))


# -- from scratch -----------------------------------------------------------------------------------------------------
class FromScratch(Policy):
    """Acts at random, and keeps what it was given."""

    def __init__(self, observation_space, action_space, config):
        Policy.__init__(self, observation_space, action_space, config)
        self.w, self.given = 1.0, {}

    def compute_actions(self, obs_batch, state_batches, prev_action_batch=None, prev_reward_batch=None, **kwargs):
        self.given = {"actions": prev_action_batch, "rewards": prev_reward_batch}
        return [self.action_space.sample() for _ in obs_batch], [], {}

    def learn_on_batch(self, samples):
        gradients, info = self.compute_gradients(samples)
        self.apply_gradients(gradients)
        return info

    def compute_gradients(self, postprocessed_batch):
        return [2.0], {"rows": postprocessed_batch.count}

    def apply_gradients(self, gradients):
        self.w += gradients[0]

    def get_weights(self):
        return {"w": self.w}

    def set_weights(self, weights):
        self.w = weights["w"]


class ByGradients(FromScratch):
    learn_on_batch = Policy.learn_on_batch


@pytest.mark.parametrize("cls", [FromScratch, ByGradients])
def test_a_policy_from_scratch_gets_the_trainer_s_config_and_earlier_steps(cls: Any) -> None:
    trainer: Any = build_trainer("Scratch", default_policy=cls)(
        env="CartPole-v1", config={"train_batch_size": 50, "gamma": 0.9}
    )
    assert trainer.policy.config["gamma"] == 0.9 and trainer.policy.config["train_batch_size"] == 50
    result = trainer.train()
    trainer.stop()
    assert trainer.policy.w == 3.0 and 0 < result["train/rows"] == result["timesteps_total"]
    assert trainer.policy.given["actions"].shape == trainer.policy.given["rewards"].shape == (1,)


class Told(gym.Env):
    """The info of each step holds its number."""

    observation_space, action_space = spaces.Box(-1, 1, (1,)), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros(1, np.float32), {"t": 0, "parts": {"half": 0.0}}

    def step(self, action):
        self.t += 1
        return np.zeros(1, np.float32), 1.0, self.t == 3, False, {"t": self.t, "parts": {"half": self.t / 2}}


class ReadsInfos(FromScratch):
    seen: ClassVar[list[Any]] = []

    def compute_actions(self, obs_batch, state_batches, info_batch=None, episodes=None, **kwargs):
        self.seen.append(info_batch)
        return [0 for _ in obs_batch], [], {}


def test_a_policy_from_scratch_reads_the_info_of_each_environment() -> None:
    policy = ReadsInfos(Told.observation_space, Told.action_space, {})
    RolloutWorker(Told, policy, num_envs=2, fragment_length=4).sample()
    assert ReadsInfos.seen == [[{"t": t, "parts": {"half": t / 2}}] * 2 for t in (0, 1, 2, 3)]


class WithConfig(TorchPolicy):
    """A policy with a model whose constructor is RLlib's."""

    def __init__(self, observation_space, action_space, config):
        super().__init__(observation_space, action_space, config)

    def loss(self, model, dist_class, train_batch):
        return model(train_batch)[0].square().mean()


def test_a_torch_policy_with_rllib_s_constructor_gets_lr_and_model_from_the_config() -> None:
    config = {"train_batch_size": 50, "lr": 0.5, "model": {"fcnet_hiddens": [7]}}
    trainer: Any = build_trainer("Own", default_policy=WithConfig)(env="CartPole-v1", config=config)
    assert trainer.train()["train/lr"] == 0.5 and next(trainer.policy.model.parameters()).shape == (7, 4)
    trainer.stop()


# -- losses as functions ----------------------------------------------------------------------------------------------
def test_q_loss_by_hand() -> None:
    """r = 1, γⁿ = ½, Q' = 4: the target is 3, or 1 at an end; Huber of −2 and 1 is 1.5 and 0.5, weighted 1 and 2."""
    q, best, ones = torch.tensor([1.0, 2.0]), torch.tensor([4.0, 4.0]), torch.ones(2)
    loss = QLoss(q, None, best, None, torch.tensor([1.0, 2.0]), ones, torch.tensor([0.0, 1.0]), 0.5**0.5, 2)
    assert_close(loss.td_error, torch.tensor([-2.0, 1.0]))
    assert loss.loss.item() == pytest.approx((1.5 + 2 * 0.5) / 2)


@pytest.mark.parametrize("extensions", [{}, {"double": False}, {"num_atoms": 11}, {"dueling": True}])
def test_build_q_losses_is_dqn_s_loss(extensions: dict[str, Any]) -> None:
    cls: Any = DQNTorchPolicy.with_updates("QLosses", loss_fn=build_q_losses)
    policy, own = (each(*CARTPOLE.spaces(), seed=1, **extensions) for each in (cls, DQN))
    rows = own.postprocess_trajectory(small_worker(own).sample())
    (loss, metrics), (expected, names) = policy.loss(rows), own.loss(rows)
    assert_close(loss, expected)
    assert metrics["td_errors"].shape == names["td_errors"].shape == (rows.count,)
    assert PRIO_WEIGHTS == "weights" and SampleBatch.of(rows)[PRIO_WEIGHTS].unique().tolist() == [1.0]


def test_td_errors_of_a_loss_function_become_priorities() -> None:
    policy: Any = build_policy_class("DQNLike", framework="torch", base=DQNTorchPolicy, loss_fn=build_q_losses)
    config = {"learning_starts": 50, "prioritized_replay": True, "timesteps_per_iteration": 100, "train_batch_size": 8}
    trainer: Any = DQNTrainer.with_updates("Mine", default_policy=policy)(env="CartPole-v1", config=config)
    result = trainer.train()
    trainer.stop()
    assert np.isfinite(result["train/loss"]) and result["train/mean_q"] != 0
    assert len(trainer.policy.learner.td_errors) == 8


# -- chains and mixins ------------------------------------------------------------------------------------------------
def kl_of(policy, model, dist_class, train_batch):
    loss, metrics = PPO.loss(policy, train_batch)
    policy.update_kl(1.0)
    return loss, metrics


def setup_mixins(policy, obs_space, action_space, config):
    ValueNetworkMixin.__init__(policy, obs_space, action_space, config)
    KLCoeffMixin.__init__(policy, {"kl_coeff": 0.2, "kl_target": 0.01})
    EntropyCoeffSchedule.__init__(policy, 0.1, [[0, 0.1], [100, 0.0]])
    LearningRateSchedule.__init__(policy, config["lr"])


First = PPOTorchPolicy.with_updates(
    "First",
    before_init=setup_mixins,
    mixins=[LearningRateSchedule, EntropyCoeffSchedule, KLCoeffMixin, ValueNetworkMixin],
)
Second = First.with_updates("Second", loss_fn=kl_of)


def test_a_chain_of_with_updates_keeps_hooks_and_mixins() -> None:
    policy: Any = Second(*CARTPOLE.spaces(), lr=0.25, minibatches=1, passes=2)
    assert isinstance(policy, PPOTorchPolicy) and policy.cur_lr == 0.25 and policy.entropy_coeff == 0.1
    assert policy._value(OBS[0]) == pytest.approx(policy.values(torch.from_numpy(OBS[None]))[0, 0].item())
    policy.learn_on_batch(small_worker(policy).sample())
    assert policy.kl_coeff == pytest.approx(0.2 * 1.5**2) and policy.entropy_coeff < 0.1


def test_add_mixins_lets_the_last_override_the_first() -> None:
    base, first, second = (
        type("Base", (), {"who": 0, "a": 0}),
        type("A", (), {"who": 1}),
        type("B", (), {"who": 2, "a": 2}),
    )
    assert add_mixins(base, [first, second])().who == 2 and add_mixins(base, [second, first])().who == 1
    assert add_mixins(base, None) is base and issubclass(add_mixins(base, [first]), base)
