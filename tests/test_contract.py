"""What holds for every policy in conf/policy; a new algorithm is included by its file."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lightning_rl
from lightning_rl import policies
from lightning_rl.config import compose_config
from lightning_rl.config.check import check_config
from lightning_rl.config.groups import group_options
from lightning_rl.config.run_fractions import fractions_to_env_steps
from lightning_rl.data.population_source import evaluate_perturbations
from lightning_rl.envs import EnvCreator
from lightning_rl.errors import UnsupportedSpaceError, import_object
from lightning_rl.learning.metrics import Metrics
from lightning_rl.policies import Policy
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.runs.algorithm import Algorithm
from lightning_rl.sample_batch import SampleBatch, to_nested_batch
from lightning_rl.schema.signatures import keywords_of
from lightning_rl.spaces import leaf_values
from tests.families import ONE_PER_PIPELINE, each
from tests.models.parameters import trainable_vector
from tests.policies.group_tasks import stacked
from tests.shipped_policies import FOR_GROUPS, POLICIES, online, policy_class, takes

ENVS = {"cartpole": "Discrete", "pendulum": "Box"}
REFUSED = [  # because of their actions
    (name, env) for name in POLICIES for env, actions in ENVS.items() if name in FOR_GROUPS or not takes(name, actions)
]
PAIRS = [(name, env) for name in POLICIES for env in ENVS if (name, env) not in REFUSED]
PAIRS += [(name, "two_step_game") for name in FOR_GROUPS]
FIRST = {"ppo": ("cartpole", "pendulum"), "sac": ("pendulum",), "qmix": ("two_step_game",)}


def with_one_per_pipeline(pairs: Iterable[tuple[str, str]]) -> list[Any]:
    """Pairs as parameters of a test; the default run tries one or two of each pipeline."""
    chosen = {(name, env) for name in (*ONE_PER_PIPELINE, "qmix") for env in FIRST.get(name, ("cartpole",))}
    return [pytest.param(*pair, marks=() if pair in chosen else pytest.mark.every) for pair in pairs]


def made(name: str, env: str, **changes: Any) -> tuple[Policy, RolloutWorker]:
    grouped = [] if (name, env) in PAIRS else ["env.group_agents=null"]
    config = fractions_to_env_steps(compose_config([f"policy={name}", f"env={env}", "experiment=none", *grouped]))
    keywords = {**config["policy"], **changes}
    creator = EnvCreator(**config["env"])
    policy: Policy = import_object(keywords.pop("_target_"))(*creator.spaces(), **keywords)
    how: dict[str, Any] = {"batch_mode": "complete_episodes"} if policy.evolves else {"fragment_length": 16}
    return policy, RolloutWorker(creator, policy, num_envs=4, seed=1, **{"fragment_length": 1, **how})


def experience(policy: Policy, worker: RolloutWorker) -> SampleBatch:
    """What the policy learns from: a fragment, or a population's returns."""
    return evaluate_perturbations(worker, seeds=[3, 4, 5]).torch() if policy.evolves else worker.sample()


def loss_with_a_pull(policy: Policy, batch: SampleBatch) -> tuple[torch.Tensor, Metrics]:
    """Pulls every weight down with a force of its own."""
    return torch.stack([p.sum() for p in policy.parameters() if p.requires_grad]).sum(), {
        "rows": torch.tensor(float(batch.count))
    }


@pytest.mark.parametrize("name", POLICIES)
def test_a_policys_config_is_its_constructor(name: str) -> None:
    """Every keyword is a key with the same default; a learning rate that falls with the run begins with the default."""
    config = compose_config([f"policy={name}", "env=custom", "env.id=CartPole-v1", "experiment=none"])
    written = config["policy"]
    written.pop("_target_")
    keywords = keywords_of(policy_class(name))
    assert set(written) == set(keywords) - {"observation_space", "action_space", "config"}
    for key, value in written.items():
        default = keywords[key].default
        if key in ("model", "exploration", "seed"):
            assert value == config[key]
        elif key == "lr" and isinstance(value, list):
            assert value[0] == [0, default] and value[-1][0] == "100%"
        else:
            assert value == (list(default) if isinstance(default, tuple) else default)


def test_classes_of_the_policies_namespace_are_public_names_of_the_package() -> None:
    """A class that is named by its file (`lightning_rl.policies.toy.Toy`) needs no line elsewhere."""
    for found in (found for found in map(policy_class, POLICIES) if hasattr(policies, found.__name__)):
        assert getattr(lightning_rl, found.__name__) is found and found.__name__ in lightning_rl.__all__


def share_of_pairs(every: int) -> list[tuple[str, str]]:
    """Each policy with one of so many environments."""
    numbered = enumerate(POLICIES), enumerate(group_options("env"))
    return [(name, env) for (row, name), (column, env) in product(*numbered) if (row - column) % every == 0]


ONCE = min(len(POLICIES), len(group_options("env")))  # each policy and each environment is in one pair at least


@pytest.mark.parametrize(
    "share",
    [ONCE, pytest.param(5, marks=pytest.mark.every), pytest.param(1, marks=pytest.mark.slow)],
    ids=["each once", "a fifth", "all"],
)
def test_pairs_compose_and_pass_the_check(share: int) -> None:
    wrong = []
    for name, env in share_of_pairs(share):
        overrides = ["env.id=CartPole-v1"] if env in ("atari", "custom", "pettingzoo") else []
        try:
            check_config(compose_config([f"policy={name}", f"env={env}", *overrides]))
        except Exception as error:
            wrong.append((name, env, error))
    assert not wrong


@pytest.mark.parametrize(
    ("name", "env"),
    [pytest.param(*pair, marks=() if pair[0] in ("dqn", "td3", "qmix") else pytest.mark.every) for pair in REFUSED],
)
def test_actions_that_an_algorithm_cannot_take_are_refused_with_one_that_can(name: str, env: str) -> None:
    with pytest.raises(UnsupportedSpaceError, match=r"action space .*ppo"):
        made(name, env)


@pytest.mark.parametrize("name", each(POLICIES, default=(*ONE_PER_PIPELINE, "qmix")))
def test_load_from_checkpoint_gives_the_policy_again(name: str, tmp_path: Path) -> None:
    policy, _ = made(name, dict(reversed(PAIRS))[name])
    checkpoint: dict[str, Any] = {"state_dict": policy.state_dict()}
    policy.on_save_checkpoint(checkpoint)
    torch.save(checkpoint, tmp_path / "policy.ckpt")
    loaded = type(policy).load_from_checkpoint(tmp_path / "policy.ckpt")
    assert type(loaded) is type(policy) and torch.equal(trainable_vector(loaded), trainable_vector(policy))


@pytest.mark.parametrize(("name", "env"), with_one_per_pipeline(PAIRS))
class TestLearning:
    """Two updates on a discrete and on a continuous environment; of policies for groups on a game of two agents."""

    def test_gradients_are_finite_and_reach_the_policy(self, name: str, env: str) -> None:
        policy, worker = made(name, env)
        for _ in range(max(2, getattr(policy, "policy_delay", 2))):  # to a step of delayed actors
            before = trainable_vector(policy)
            metrics = policy.learn_on_batch(experience(policy, worker))
            assert all(np.isfinite(value) for value in metrics.values())
            assert not torch.equal(before, trainable_vector(policy))
        acting = [p for key, p in policy.named_parameters() if p.requires_grad and "value" not in key]
        assert all(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in acting)

    def test_equal_seeds_end_in_equal_weights(self, name: str, env: str) -> None:
        ends = []
        for seed in (7, 7, 8):
            policy, worker = made(name, env, seed=seed)
            for _ in range(2):
                policy.learn_on_batch(experience(policy, worker))
            ends.append(trainable_vector(policy))
        assert torch.equal(ends[0], ends[1])
        assert not torch.equal(ends[0], ends[2])

    def test_weights_survive_pickling(self, name: str, env: str) -> None:
        policy, worker = made(name, env)
        policy.learn_on_batch(experience(policy, worker))
        twin, _ = made(name, env, seed=99)
        twin.set_weights(pickle.loads(pickle.dumps(policy.get_weights())))
        assert torch.equal(trainable_vector(policy), trainable_vector(twin))

    def test_a_saved_and_loaded_policy_acts_bit_equally(self, name: str, env: str, tmp_path: Path) -> None:
        algorithm = Algorithm(name, env, overrides=[f"run_dir={tmp_path}", "workers.envs_per_worker=4", *online(name)])
        algorithm.train()
        loaded = Policy.load(str(algorithm.save()))
        obs = stacked([to_nested_batch(algorithm.policy.observation_space.sample()) for _ in range(8)])
        for explore in (False, True):
            for policy in (algorithm.policy, loaded):
                policy.seed_exploration(3)
            here, there = (policy.compute_actions(obs, explore=explore)[0] for policy in (algorithm.policy, loaded))
            pairs = zip(
                leaf_values(algorithm.policy.action_space, here), leaf_values(loaded.action_space, there), strict=True
            )
            assert all(torch.equal(mine, theirs) for mine, theirs in pairs)
        algorithm.stop()

    def test_custom_losses_reach_every_parameter(self, name: str, env: str) -> None:
        plain = {"lr": 1.0, "optimizer": "sgd", "optimizer_kwargs": None, "max_grad_norm": None}
        policy, worker = made(name, env, custom_losses=[f"{__name__}:loss_with_a_pull"], **plain)
        twin, _ = made(name, env, **plain)
        policy.passes = twin.passes = policy.minibatches = twin.minibatches = 1
        for either in (policy, twin):
            either.gradient_steps = getattr(either, "policy_delay", 2) - 1  # the next step is one of delayed actors
            either.__dict__["project_weights"] = lambda: None  # XQC's would hide the pull
        batch = experience(policy, worker)
        metrics = policy.learn_on_batch(batch)
        twin.learn_on_batch(batch)
        torch.testing.assert_close(trainable_vector(policy), trainable_vector(twin) - 1.0, rtol=0, atol=1e-4)
        assert metrics["loss_with_a_pull/rows"] > 0
