"""Action masks, in an info or in the observation: every distribution computed from a row is masked."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from lightning_rl import Algorithm
from lightning_rl.envs import EnvCreator
from lightning_rl.errors import EnvApiError, NonFiniteError
from lightning_rl.policies import DQN, PPO, SAC, Policy, RandomPolicy
from lightning_rl.policies.kl import acting_distribution
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.sample_batch import SampleBatch, action_mask_of
from tests.envs.masked_envs import ACTIONS, TIMES, InTwoPlaces, Masked, MaskedVector, make_masked
from tests.families import each

MASK = spaces.MultiBinary(3)
VECTOR = spaces.Box(-1.0, 1.0, (2,), np.float32)
SPACES: dict[str, spaces.Space[Any]] = {
    "in info": VECTOR,
    "in obs": spaces.Dict(action_mask=MASK, x=VECTOR),
    "in nested obs": spaces.Dict(action_mask=MASK, parts=spaces.Dict(x=VECTOR, y=spaces.Tuple((VECTOR, VECTOR)))),
}
NOISE = {"type": "parameter_noise", "random_timesteps": 0, "initial_stddev": 1e-3}


class Forbidding(Masked):
    """Its mask forbids one of three actions, in the info or in the observation."""

    def __init__(self, kind: str) -> None:
        super().__init__("discrete")
        self.kind, self.observation_space = kind, SPACES[kind]

    def _observe(self, call: str) -> tuple[Any, dict[str, Any]]:
        x, info = super()._observe(call)
        if self.kind == "in info":
            return x, info
        return {**({"x": x} if self.kind == "in obs" else {"parts": {"x": x, "y": (x, x)}}), **info}, {}


SMALL: dict[str, Any] = {"fcnet_hiddens": [8]}


def policy_and_worker(kind: str, policy_class: type[Policy] = PPO, **keywords: Any) -> tuple[Any, RolloutWorker]:
    env = EnvCreator(Forbidding, {"kind": kind}, check=False)
    policy = policy_class(SPACES[kind], ACTIONS["discrete"], **{"model": SMALL, "seed": 1, **keywords})
    return policy, RolloutWorker(env, policy, num_envs=2, fragment_length=32, vectorization="sync", seed=2)


def masked(**env: Any) -> tuple[PPO, EnvCreator]:
    """A policy and the creator of a `Masked` environment."""
    creator = EnvCreator(make_masked, env)
    return PPO(*creator.spaces(), model=SMALL, kl_coef=0.2, seed=1), creator


def test_action_mask_of_prefers_the_mask_column_to_the_observation_s() -> None:
    inside, beside = torch.tensor([[True, False]]), torch.tensor([[False, True]])
    obs = SampleBatch(action_mask=inside, x=torch.zeros(1))
    assert action_mask_of(obs) is inside and action_mask_of({"action_mask": inside}) is inside
    assert action_mask_of(obs, beside) is beside and action_mask_of(torch.zeros(1), beside) is beside
    assert action_mask_of(torch.zeros(1)) is None and action_mask_of({"x": inside}) is None


@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("model", [SMALL, {"use_lstm": True, "lstm_cell_size": 8}], ids=["feed-forward", "lstm"])
def test_ppo_s_kl_penalty_compares_two_masked_distributions(kind: str, model: dict[str, Any]) -> None:
    """Before the first gradient step the policy is the one that acted: KL(π_old‖π) = 0."""
    policy, worker = policy_and_worker(kind, kl_coef=0.2, model=model)
    rows = policy.learner.rows_of(worker.sample())
    _, metrics = policy.loss(rows)
    assert abs(metrics["kl"].item()) < 1e-6
    assert torch.isfinite(acting_distribution(policy, rows).logp(rows.actions)).all()
    assert acting_distribution(policy, rows).log_probs().exp().eq(0.0).sum(1).eq(1).all()


@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("policy_class", [PPO, DQN])
def test_parameter_noise_measures_the_distance_between_masked_distributions(kind: str, policy_class: Any) -> None:
    """Noise of σ = 0.001 hardly changes the policy, so σ grows; masked against unmasked the distance would be ln 2."""
    policy, worker = policy_and_worker(kind, policy_class, exploration=NOISE)
    policy.env_steps = 1
    policy.exploration.postprocess_trajectory(policy, worker.sample())
    assert policy.exploration.stddev.item() == pytest.approx(1.01e-3)


@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("policy_class", [DQN, SAC])
def test_mask_of_gives_the_masks_of_rows_and_of_their_next_observations(kind: str, policy_class: type[Policy]) -> None:
    policy, worker = policy_and_worker(kind, policy_class)
    rows = policy.postprocess_trajectory(worker.sample())
    if kind == "in info":
        rows["next_action_mask"] = ~rows.action_mask
    for following, prefix in ((False, ""), (True, "next_")):
        given = rows.get(f"{prefix}action_mask")
        given = rows[f"{prefix}obs"].action_mask.bool() if given is None else given
        assert torch.equal(policy.mask_of(rows, following=following), given)


def test_the_error_for_an_infinite_kl_names_action_masks_and_not_the_learning_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """π excludes an action that π_old, computed without its mask, allows: KL(π_old‖π) = inf in the first step."""
    policy, worker = policy_and_worker("in obs", PPO, kl_coef=0.2)

    def without_mask(policy: Any, rows: SampleBatch) -> Any:
        return policy.distribution(rows.action_dist_inputs)

    monkeypatch.setattr("lightning_rl.policies.ppo.acting_distribution", without_mask)
    with pytest.raises(NonFiniteError, match=r"loss is inf \(kl inf.*action masks\)$") as refusal:
        policy.learn_on_batch(worker.sample())
    assert "policy.lr" not in str(refusal.value)


def test_random_actions_keep_to_masks_and_need_a_forward_only_for_masks_and_log_probabilities() -> None:
    """With ε = 1 only a mask or the log-probability needs the model's distribution."""
    policy = DQN(VECTOR, spaces.Discrete(3), exploration={"type": "epsilon_greedy", "epsilon_schedule": 1.0})
    obs, mask = np.zeros((64, 2), np.float32), np.tile([True, False, True], (64, 1))
    forwards: list[Any] = []
    policy.model.register_forward_hook(lambda *args: forwards.append(args))
    drawn, _, columns = policy.compute_actions(obs, logp=False)
    assert set(drawn.tolist()) == {0, 1, 2} and columns == {} and not forwards
    drawn, _, columns = policy.compute_actions(obs, action_mask=mask, logp=False)
    assert set(drawn.tolist()) == {0, 2} and "action_logp" not in columns and len(forwards) == 1
    _, _, columns = policy.compute_actions(obs)
    assert torch.allclose(columns["action_logp"].exp(), torch.full((64,), 1 / 3)) and len(forwards) == 2


# -- masks in any form, at any time -----------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("actions", ACTIONS)
def test_workers_find_masks_in_any_form_and_record_them(actions: str, mode: AutoresetMode) -> None:
    """The environment refuses forbidden actions; where it gives no mask, everything is allowed."""
    for number, time in enumerate(TIMES):
        policy, env = masked(actions=actions, time=time, form=("arrays", "lists", "mixed")[number % 3])
        worker = RolloutWorker(env, policy, num_envs=2, fragment_length=12, mode=mode, max_env_restarts=0, seed=2)
        for _ in range(2):
            fragment = worker.sample()
            masks = fragment.action_mask
            assert masks.shape[:2] == fragment.valid.shape and masks.any(-1).all() and not masks.all()
            rows = policy.learner.rows_of(fragment)
            assert torch.isfinite(acting_distribution(policy, rows).logp(rows.actions)).all()


@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_a_native_vector_s_masks_are_kept(algorithm: str, tmp_path: Any) -> None:
    """The vector refuses forbidden actions."""
    name = "MaskedVector-v0"
    gym.register(name, Masked, kwargs={"actions": "discrete"}, vector_entry_point=MaskedVector)
    try:
        small = {"data": {"batch_size": 8, "learning_starts": 8}} if algorithm == "dqn" else {}
        workers = {"vectorization": "native", "envs_per_worker": 3, "max_env_restarts": 0}
        trained = Algorithm(algorithm, name, config={"workers": workers, "run_dir": str(tmp_path), **small})
        assert trained.train()["gradient_steps"] > 0
        trained.stop()
    finally:
        del gym.registry[name]


@pytest.mark.parametrize("actions", ["from 5", "nested"])
def test_single_actions_obey_the_mask_of_an_info(actions: str) -> None:
    policy, _ = masked(actions=actions, form="mixed")
    single = Masked(actions, form="mixed")
    obs, info = single.reset(seed=0)
    for number in range(40):
        action = policy.compute_single_action(obs, explore=number % 2 == 0, action_mask=info["action_mask"])
        obs, _, _, _, info = single.step(action)
    with pytest.raises(ValueError, match="action_mask"):
        policy.compute_single_action(obs, action_mask=[True])


@pytest.mark.parametrize("mode", AutoresetMode)
def test_the_mask_of_a_final_observation_is_recorded_in_the_row_that_resets(mode: AutoresetMode) -> None:
    """Random masks differ from step to step: all modes record the same ones."""
    masks = []
    for each_mode in (AutoresetMode.NEXT_STEP, mode):
        policy, env = masked(actions="discrete")
        fragment = RolloutWorker(env, policy, fragment_length=12, mode=each_mode, seed=2).sample()
        assert fragment.valid[:12, 0].tolist() == [*[True] * 5, False] * 2
        masks.append(fragment.action_mask[:12])
    assert torch.equal(*masks) and not masks[0].all(-1).any()


@pytest.mark.parametrize("time", ["step", "third"])
@pytest.mark.parametrize("algorithm", each(["ppo", "impala", "dqn", "sac", "r2d2"], default=("ppo", "sac")))
def test_algorithms_train_and_evaluate_where_only_some_infos_hold_a_mask(
    algorithm: str, time: str, tmp_path: Any
) -> None:
    """Off-policy fragments are one step long: the first one comes before any mask."""
    small = {name: {"batch_size": 8, "learning_starts": 8} for name in ("dqn", "sac")}
    small["r2d2"] = {"batch_size": 16, "learning_starts": 32}
    env = {"kwargs": {"actions": "discrete", "time": time, "form": "mixed"}}
    config = {"env": env, "evaluation": {"episodes": 2}, "data": small.get(algorithm, {}), "run_dir": str(tmp_path)}
    trained = Algorithm(algorithm, make_masked, config={**config, "workers": {"max_env_restarts": 0}})
    for _ in range(2):
        result = trained.train()
    assert result["gradient_steps"] > 0
    assert trained.evaluate()["eval/ep_len_mean"] == 5.0
    trained.stop()


def test_random_policies_keep_to_masks_of_any_discrete_space() -> None:
    for actions in ACTIONS:
        env = EnvCreator(make_masked, {"actions": actions})
        RolloutWorker(env, RandomPolicy(*env.spaces()), num_envs=2, fragment_length=20, max_env_restarts=0).sample()


@pytest.mark.parametrize(
    ("pairs", "vectorization"), [(False, "sync"), (True, "sync"), pytest.param(True, "async", marks=pytest.mark.slow)]
)
def test_agents_may_give_their_masks_in_different_places(pairs: bool, vectorization: str, tmp_path: Any) -> None:
    workers = {"fragment_length": 20, "envs_per_worker": 2, "vectorization": vectorization, "max_env_restarts": 0}
    config = {"run_dir": str(tmp_path), "env": {"kwargs": {"pairs": pairs}}, "workers": workers}
    algorithm = Algorithm("ppo", InTwoPlaces, config=config)
    assert algorithm.train()["env_steps"] >= 20
    algorithm.stop()


def test_members_of_a_group_may_give_their_masks_in_different_places() -> None:
    env = EnvCreator(InTwoPlaces, group_agents="all")
    policy = RandomPolicy(*env.spaces())
    obs, _ = env.make_single().reset()
    assert [mask.tolist() for mask in obs["action_masks"]] == [[0, 0, 1], [0, 0, 1], [1, 1, 1]]
    assert policy.action_space == spaces.Tuple([spaces.Discrete(3)] * 3)


class Wrong(Masked):
    """Gives this mask after each step."""

    def __init__(self, mask: Any, in_obs: bool = False) -> None:
        super().__init__("multi discrete", time="reset")
        self.wrong, self.in_obs = mask, in_obs
        if in_obs:
            self.observation_space = spaces.Dict(x=VECTOR, action_mask=spaces.MultiBinary(5))

    def _observe(self, call: str) -> tuple[Any, dict[str, Any]]:
        obs, _ = super()._observe(call)
        self.mask = None
        if self.in_obs:
            return {"x": obs, "action_mask": np.array(self.wrong, np.int8)}, {}
        return obs, {"action_mask": self.wrong} if call == "step" else {}


@pytest.mark.parametrize(
    ("mask", "in_obs"), [([1, 1, 1], False), (([1, 1], [0, 0, 0]), False), ([0, 0, 1, 1, 1], True)]
)
def test_a_mask_that_does_not_fit_or_allows_nothing_is_refused_by_name(mask: Any, in_obs: bool) -> None:
    """Before training by the check, or by the worker where there is no check."""
    env = EnvCreator(Wrong, {"mask": mask, "in_obs": in_obs}, check=False)
    worker = RolloutWorker(env, PPO(*env.spaces(), model={"fcnet_hiddens": [8]}), fragment_length=4)
    with pytest.raises(EnvApiError, match=r"(?s)'Wrong'.*action_mask=.*expected"):
        worker.sample()
