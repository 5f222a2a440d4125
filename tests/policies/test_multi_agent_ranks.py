"""The policies of several agents trained by two DDP ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.policies.rank_results import assert_ranks_agree, results_of_ranks

pytestmark = pytest.mark.process  # test_ranks.py has the one that runs by default

PROGRAM = """
    import torch
    from lightning.pytorch import Callback
    from torch.utils.data import DataLoader, IterableDataset
    from lightning_rl.sample_batch import MultiAgentBatch
    from tests.policies.fits_and_files import trainer_of
    from tests.policies.several_agents import DQN_ENTRY, PPO_ENTRY, sample, several

    class Batches(IterableDataset):
        "Batch 1 has no rows of the policy `second` on rank 0, and batch 2 has few of `first` on rank 1."

        def __len__(self):
            return 3

        def __iter__(self):
            rank = torch.distributed.get_rank()
            for seed in range(3):
                policy.eval()
                parts = dict(sample(policy, seed=2 * seed + rank).policy_batches)
                if (seed, rank) == (1, 0):
                    parts["second"]["valid"] = torch.zeros_like(parts["second"].valid)
                if (seed, rank) == (2, 1):
                    parts["first"]["valid"][2:] = False
                yield MultiAgentBatch(parts, 16)

    ppo = {**PPO_ENTRY, "observation_filter": "mean_std", "minibatches": 4, "passes": 1}
    policy = several({"first": ppo, "second": DQN_ENTRY, "third": "random", "fourth": PPO_ENTRY},
                     {f"cart_{i}": name for i, name in enumerate(("first", "second", "third", "fourth"))},
                     carts=4, policies_to_train=["first", "second"])
    before = {name: value.clone() for name, value in policy.state_dict().items()}

    class Save(Callback):
        def on_train_end(self, trainer, module):
            steps = {name: part.gradient_steps for name, part in module.policies.items()}
            torch.save({"weights": dict(module.state_dict()), "before": before, "steps": steps,
                        "env_steps": module.env_steps}, f"rank{trainer.global_rank}.pt")

    trainer = trainer_of(".", devices=2, strategy="ddp_fork_find_unused_parameters_true",
                         use_distributed_sampler=False, callbacks=[Save()])
    trainer.fit(policy, DataLoader(Batches(), batch_size=None))
"""


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What `PROGRAM` wrote, by rank."""
    return results_of_ranks(tmp_path_factory.mktemp("ranks"), program=PROGRAM)


def test_ranks_have_equal_weights_and_filters(ranks: list[Any]) -> None:
    assert_ranks_agree(*ranks)


def test_trained_policies_have_learned_and_the_frozen_one_has_not(ranks: list[Any]) -> None:
    for policy_id, learned in (("first", True), ("second", True), ("fourth", False)):
        own = [name for name in ranks[0]["before"] if name.startswith(f"policies.{policy_id}.")]
        assert own
        assert any(not torch.equal(ranks[0]["before"][name], ranks[0]["weights"][name]) for name in own) is learned


def test_a_policy_without_rows_on_one_rank_learns_on_neither(ranks: list[Any]) -> None:
    """DQN takes one step with each batch but batch 1; PPO four with each, of which batch 2 has too few rows: two."""
    assert ranks[0]["steps"] == ranks[1]["steps"] == {"first": 4 + 4 + 2, "second": 2, "third": 0, "fourth": 0}
    assert ranks[0]["env_steps"] == ranks[1]["env_steps"] == 3 * 2 * 16


SELDOM = """
import numpy as np
import torch
from gymnasium import spaces
from lightning.pytorch import Callback
from lightning_rl import MultiAgentEnv


class Seldom(MultiAgentEnv):
    "`often` acts in each of 40 steps, `seldom` in two of them."

    possible_agents = ["often", "seldom"]
    observation_spaces = {"often": spaces.Box(-1, 1, (3,)), "seldom": spaces.Box(-1, 1, (4,))}
    action_spaces = {"often": spaces.Discrete(2), "seldom": spaces.Discrete(2)}

    def observe(self):
        agents = self.possible_agents if self.count % 20 == 19 else ["often"]
        return {agent: np.full(self.observation_spaces[agent].shape, self.count / 40, np.float32) for agent in agents}

    def reset(self, *, seed=None, options=None):
        self.count = 0
        return self.observe(), {}

    def step(self, actions):
        self.count += 1
        return self.observe(), {agent: 1.0 for agent in actions}, {"__all__": self.count == 40}, {"__all__": False}, {}


class Save(Callback):
    def on_train_end(self, trainer, policy):
        steps = {name: each.gradient_steps for name, each in policy.policies.items()}
        torch.save({"weights": dict(policy.state_dict()), "steps": steps}, f"rank{trainer.global_rank}.pt")
"""


def test_ranks_of_one_command_train_the_same_policies_in_the_order_of_the_config(tmp_path: Path) -> None:
    """Rank 1 gets the config as a file; rows of an agent that acts seldom are enough on one rank before the other."""
    (tmp_path / "seldom.py").write_text(SELDOM)
    policies = "policies={z: {policy: ppo}, y: {policy: dqn, data: {learning_starts: 16, batch_size: 16}}}"
    command = f"-m lightning_rl train policy=ppo env=custom env.id=seldom:Seldom {SMALL} run_dir=out"
    first, second = results_of_ranks(tmp_path, *command.split(), policies, "policy_mapping={often: z, *: y}")
    assert [*first["steps"]] == [*second["steps"]] == ["z", "y"]
    assert first["steps"] == second["steps"] and min(first["steps"].values()) > 0
    assert_ranks_agree(first, second)


SMALL = (
    "evaluation=none model.fcnet_hiddens=[8] total_env_steps=800 workers.envs_per_worker=2 workers.fragment_length=20 "
    "policy.minibatches=1 trainer=ddp trainer.accelerator=cpu trainer.enable_progress_bar=false callbacks=[seldom:Save]"
)
