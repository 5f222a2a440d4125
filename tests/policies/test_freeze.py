"""`policy.freeze`: parameters that never change, that get no gradient, and that the optimizer leaves out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from gymnasium import spaces

from lightning_rl.config import check_config, compose_config
from lightning_rl.policies import A3C, DQN, ES, PPO, SAC, TD3
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.runs import run
from tests.refusals import not_refused

OBS, BOX, DISCRETE = spaces.Box(-1, 1, (3,)), spaces.Box(-1, 1, (2,)), spaces.Discrete(2)
SMALL: dict[str, Any] = {"fcnet_hiddens": [8]}


@pytest.mark.parametrize(
    ("policy_class", "space", "pattern"),
    [
        (PPO, DISCRETE, "model.trunk.*"),
        (SAC, BOX, "model.trunk.*"),
        (SAC, BOX, "critic.*"),
        (TD3, BOX, "critic.*"),
        (DQN, DISCRETE, "model.wrapped.*"),
        (A3C, DISCRETE, "model.trunk.layers.0.weight"),
    ],
)
def test_frozen_parameters_get_no_gradient_and_are_not_the_optimizers(policy_class: Any, space: Any, pattern: str):
    policy = policy_class(OBS, space, model=SMALL, freeze=[pattern])
    named = dict(policy.named_parameters())
    stopped = {name for name, parameter in named.items() if not parameter.requires_grad and "target" not in name}
    assert stopped == {name for name in named if name.startswith(pattern.rstrip("*"))} and stopped
    groups = policy.learner.optimizer.torch_optimizer.param_groups
    trained = sum(parameter.numel() for name, parameter in named.items() if parameter.requires_grad)
    stepped = sum(parameter.numel() for group in groups for parameter in group["params"])
    assert trained <= stepped < trained + 16 * len(named)  # flat parameters have padding


@pytest.mark.parametrize("policy_class", [PPO, A3C])
def test_learning_changes_all_but_the_frozen_parameters(policy_class: Any):
    policy = policy_class(spaces.Box(-10, 10, (4,)), DISCRETE, model=SMALL, freeze=["model.trunk.*"], lr=0.01)
    before = {name: parameter.detach().clone() for name, parameter in policy.named_parameters()}
    worker = RolloutWorker("CartPole-v1", policy, num_envs=2, fragment_length=16)
    for _ in range(2):
        fragment = worker.sample()
        gradients, _ = policy.compute_gradients(fragment)
        policy.apply_gradients(gradients)
        policy.learn_on_batch(fragment)
    for name, parameter in policy.named_parameters():
        assert torch.equal(before[name], parameter) == name.startswith("model.trunk."), name


def test_a_population_does_not_perturb_frozen_parameters():
    policy = ES(OBS, DISCRETE, model=SMALL, freeze=["model.trunk.*"])
    frozen = policy.model.trunk.layers[0].weight
    with policy.perturb(seed=3, scale=1.0):
        assert torch.equal(frozen, ES(OBS, DISCRETE, model=SMALL).model.trunk.layers[0].weight)
    assert not any(parameter is frozen for parameter in policy.evolved_parameters())


def test_a_subclass_that_adds_parameters_can_freeze_them():
    class Extended(PPO):
        def __init__(self, observation_space: Any, action_space: Any, **keywords: Any) -> None:
            super().__init__(observation_space, action_space, **keywords)
            self.extra = torch.nn.Parameter(torch.zeros(2))

    assert not Extended(OBS, DISCRETE, freeze=["extra"]).extra.requires_grad
    assert Extended(OBS, DISCRETE).extra.requires_grad


def test_patterns_that_cannot_be_meant_are_refused():
    cases = [
        (["model.trunk"], r"'model.trunk'.*model\.trunk\.layers\.0\.weight"),
        (["model.heads.linear.bias"], r"'model.head.linear.bias'"),
        (["*"], "no parameter"),
    ]
    assert not_refused(lambda patterns: PPO(OBS, DISCRETE, model=SMALL, freeze=patterns), cases) == []


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_run_keeps_them_and_resumes(ranks: int, tmp_path: Path):
    """With two ranks by DDP, too."""
    keys = "evaluation=none experiment=none logger=none model.fcnet_hiddens=[8] policy.freeze=[model.trunk.*] "
    keys += "total_env_steps=600 workers.fragment_length=16 policy.minibatches=1 trainer.enable_progress_bar=false"
    config = compose_config([*keys.split(), f"trainer.devices={ranks}", f"run_dir='{tmp_path}/run'"])
    check_config(config)
    start, _, _ = run.build({**config, "trainer": {**config["trainer"], "devices": 1}})
    assert run.train(config)["state"] == "ok"
    again = run.resumed_config(tmp_path / "run", {"total_env_steps": 1200})
    check_config(again)
    last = tmp_path / "run" / "checkpoints" / "last.ckpt"
    assert run.train(again, last)["env_steps"] >= 1200
    held = torch.load(last, weights_only=True)["state_dict"]
    for name, value in start.state_dict().items():
        if name.startswith("model."):
            assert torch.equal(held[name], value) == name.startswith("model.trunk."), name
