"""`policy.custom_losses`: functions that are added to an algorithm's loss."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from lightning_rl.errors import ConfigError
from lightning_rl.learning.custom_losses import CustomLosses, LossEntries
from lightning_rl.models import Model
from lightning_rl.policies import A2C, PG, PPO, Policy
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.signatures import coerce
from tests.envs.classic_control import CARTPOLE
from tests.rollouts.small_worker import small_worker


def test_a_custom_loss_has_weight_1_by_default() -> None:
    """A loss of 3 adds 3 as a function or in a dict, and 6 with a weight of 2."""

    def three(policy: Policy, batch: SampleBatch) -> Tensor:
        return torch.tensor(3.0)

    policy = PPO(*CARTPOLE.spaces(), seed=1)
    fragment = small_worker(policy).sample()
    losses = []
    for given in ([], [three], [{"loss": three}], [{"loss": three, "weight": 2.0}]):
        policy = PPO(*CARTPOLE.spaces(), custom_losses=given, seed=1)
        losses.append(policy.learner.total_loss(policy.learner.rows_of(fragment))[0].item())
    assert [loss - losses[0] for loss in losses] == pytest.approx([0.0, 3.0, 3.0, 6.0], abs=1e-5)


class Auxiliary(Model):
    """A model whose custom loss has its minimum where the parameter `pulled` is 3."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.trunk = torch.nn.Linear(self.preprocessor.size, self.num_outputs + 1)
        self.pulled = torch.nn.Parameter(torch.zeros(()))

    def forward(self, input_dict: Any, state: Any = (), seq_lens: Any = None) -> tuple[Tensor, list[Tensor]]:
        outputs = self.trunk(input_dict["obs_flat"])
        self.value = outputs[:, -1]
        return outputs[:, :-1], []

    def value_function(self) -> Tensor:
        return self.value

    def custom_loss(self, policy_loss: Tensor, loss_inputs: SampleBatch) -> Tensor:
        self.auxiliary = (self.pulled - 3.0).square() * len(loss_inputs.actions) / len(loss_inputs.actions)
        return policy_loss + self.auxiliary

    def metrics(self) -> dict[str, Tensor | float]:
        return {"auxiliary": self.auxiliary.detach()}


def keep_small(policy: Policy, batch: SampleBatch, power: int = 2) -> tuple[Tensor, dict[str, Tensor]]:
    norm = sum((p.abs() ** power).sum() for p in policy.model.parameters())
    return norm, {"rows": torch.tensor(float(batch.count))}  # type: ignore[return-value]


@pytest.mark.parametrize("algorithm", [PPO, A2C, PG])
def test_custom_losses_train_the_model_and_are_reported_by_every_algorithm(algorithm: type[Policy]) -> None:
    policy = algorithm(
        *CARTPOLE.spaces(),
        model={"custom_model": Auxiliary},
        custom_losses=[{"loss": f"{__name__}:keep_small", "weight": 1e-6, "power": 4}],
        lr=0.1,
        optimizer="sgd",
        max_grad_norm=None,
    )
    metrics = policy.learn_on_batch(small_worker(policy).sample())
    assert 0 < policy.model.pulled.item() <= 3.0  # type: ignore[union-attr]
    assert metrics["model/auxiliary"] <= 9.0 and metrics["keep_small"] > 0 and metrics["keep_small/rows"] > 0


def test_custom_losses_are_summed_with_their_weights() -> None:
    """2 · 3 + 0.5 · 5 + 7 = 15.5."""
    entries = [{"loss": lambda policy, batch: torch.tensor(3.0), "weight": 2.0}]
    entries.append({"loss": lambda policy, batch: torch.tensor(5.0), "weight": 0.5})
    total, _ = CustomLosses([*entries, lambda policy, batch: torch.tensor(7.0)])(None, SampleBatch())
    assert total is not None and total.item() == 15.5 and CustomLosses([])(None, SampleBatch()) == (None, {})


@pytest.mark.parametrize("answer", [torch.zeros(2), 3.0, (3.0, {})])
def test_the_error_for_a_custom_loss_that_returns_no_scalar_tensor_names_it(answer: Any) -> None:
    def odd(policy: Policy, batch: SampleBatch) -> Any:
        return answer

    with pytest.raises(ConfigError, match=r"'odd' returned"):
        CustomLosses([odd])(None, SampleBatch())


def test_a_policy_refuses_custom_losses_that_return_no_scalar_or_name_no_function() -> None:
    policy = PPO(*CARTPOLE.spaces(), custom_losses=[lambda policy, batch: torch.zeros(2)])
    with pytest.raises(ConfigError, match="scalar tensor"):
        policy.learn_on_batch(small_worker(policy).sample())
    with pytest.raises(ConfigError, match="import path"):
        PPO(*CARTPOLE.spaces(), custom_losses=[{"weight": 2.0}])


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("nothing", r"='nothing' is no import path; expected 'package\.module:Name'"),
        ("math:pi", r"='math:pi' is number; expected the import path of a function"),
        ({"loss": "math:exp", "weight": "x"}, r"\.weight='x' is text; expected number"),
        ({"loss": f"{__name__}:keep_small", "powr": 3}, r"unexpected keyword argument 'powr'; it is called as loss\("),
    ],
)
def test_the_error_for_a_custom_loss_that_cannot_be_called_names_its_config_key(entry: Any, message: str) -> None:
    """Both when a config is checked and when CustomLosses is built."""
    entries = [keep_small, entry]
    for refuse in (lambda: coerce("policy.custom_losses", entries, LossEntries), lambda: CustomLosses(entries)):
        with pytest.raises(ConfigError, match=rf"^policy\.custom_losses\[1\].*{message}"):
            refuse()
