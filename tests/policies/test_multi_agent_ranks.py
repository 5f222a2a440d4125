"""The policies of several agents trained by two DDP ranks."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

PROGRAM = """
    import torch
    from lightning.pytorch import Trainer
    from torch.utils.data import IterableDataset
    from lightning_rl.sample_batch import MultiAgentBatch
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
    trainer = Trainer(max_epochs=1, accelerator="cpu", devices=2, strategy="ddp_fork_find_unused_parameters_true",
                      logger=False, enable_progress_bar=False, enable_model_summary=False,
                      enable_checkpointing=False, use_distributed_sampler=False)

    class Save(__import__("lightning").pytorch.Callback):
        def on_train_end(self, trainer, module):
            steps = {name: part.gradient_steps for name, part in module.policies.items()}
            torch.save({"weights": dict(module.state_dict()), "before": before, "steps": steps,
                        "env_steps": module.env_steps}, f"rank{trainer.global_rank}.pt")

    trainer.callbacks.append(Save())
    trainer.fit(policy, torch.utils.data.DataLoader(Batches(), batch_size=None))
"""


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What `PROGRAM` wrote, by rank."""
    directory = tmp_path_factory.mktemp("ranks")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=directory, env=environment, timeout=110)
    assert done.returncode == 0, done.stderr
    return [torch.load(directory / f"rank{rank}.pt", weights_only=True) for rank in range(2)]


def test_ranks_have_equal_weights_and_filters(ranks: list[Any]) -> None:
    for name, value in ranks[0]["weights"].items():
        torch.testing.assert_close(value, ranks[1]["weights"][name], rtol=0, atol=0, msg=name)


def test_trained_policies_have_learned_and_the_frozen_one_has_not(ranks: list[Any]) -> None:
    for policy_id, learned in (("first", True), ("second", True), ("fourth", False)):
        own = [name for name in ranks[0]["before"] if name.startswith(f"policies.{policy_id}.")]
        assert own
        assert any(not torch.equal(ranks[0]["before"][name], ranks[0]["weights"][name]) for name in own) is learned


def test_a_policy_without_rows_on_one_rank_learns_on_neither(ranks: list[Any]) -> None:
    """DQN takes one step with each batch but batch 1; PPO four with each, of which batch 2 has too few rows: two."""
    assert ranks[0]["steps"] == ranks[1]["steps"] == {"first": 4 + 4 + 2, "second": 2, "third": 0, "fourth": 0}
    assert ranks[0]["env_steps"] == ranks[1]["env_steps"] == 3 * 2 * 16
