"""`policy.custom_losses`: functions that are added to an algorithm's loss."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from lightning_rl.errors import ConfigError
from lightning_rl.learning.custom_losses import CustomLosses, LossEntries
from lightning_rl.policies import A2C, PG, PPO, Policy
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.schema.signatures import coerce
from tests.envs.classic_control import CARTPOLE
from tests.learning.models import AuxiliaryLoss
from tests.rollouts.small_worker import small_worker


def test_custom_losses_are_summed_with_their_weights() -> None:
    """A loss of 3 adds 3 as a function or in a dict, and 6 with a weight of 2; all of them add 12."""

    def three(policy: Policy, batch: SampleBatch) -> Tensor:
        return torch.tensor(3.0)

    entries = [three, {"loss": three}, {"loss": three, "weight": 2.0}]
    policy = PPO(*CARTPOLE.spaces(), seed=1)
    fragment = small_worker(policy).sample()
    losses = []
    for given in ([], *([entry] for entry in entries), entries):
        policy = PPO(*CARTPOLE.spaces(), custom_losses=given, seed=1)
        losses.append(policy.learner.total_loss(policy.learner.rows_of(fragment))[0].item())
    assert [loss - losses[0] for loss in losses] == pytest.approx([0.0, 3.0, 3.0, 6.0, 12.0], abs=1e-5)
    assert CustomLosses([])(None, SampleBatch()) == (None, {})


def keep_small(policy: Policy, batch: SampleBatch, power: int = 2) -> tuple[Tensor, dict[str, Tensor]]:
    norm = sum((p.abs() ** power).sum() for p in policy.model.parameters())
    return norm, {"rows": torch.tensor(float(batch.count))}  # type: ignore[return-value]


@pytest.mark.parametrize("algorithm", [PPO, A2C, PG])
def test_custom_losses_train_the_model_and_are_reported_by_every_algorithm(algorithm: type[Policy]) -> None:
    """They pull p of the model to 0 by 4 · 10⁻⁶ p³, besides the model's own loss p² by 2p: 2 − 0.1 · 4 = 1.6."""
    losses = [{"loss": f"{__name__}:keep_small", "weight": 1e-6, "power": 4}]
    sgd: dict[str, Any] = {"lr": 0.1, "optimizer": "sgd", "max_grad_norm": None}
    policy: Any = algorithm(*CARTPOLE.spaces(), model={"custom_model": AuxiliaryLoss}, custom_losses=losses, **sgd)
    metrics = policy.learn_on_batch(small_worker(policy).sample())
    assert policy.model.p.item() < 1.7
    assert metrics["model/auxiliary"] <= 4.0 and metrics["keep_small"] > 0 and metrics["keep_small/rows"] > 0


@pytest.mark.parametrize("answer", [torch.zeros(2), 3.0, (3.0, {})])
def test_the_error_for_a_custom_loss_that_returns_no_scalar_tensor_names_it(answer: Any) -> None:
    def odd(policy: Any, batch: SampleBatch) -> Any:
        return answer

    policy = PPO(*CARTPOLE.spaces(), custom_losses=[odd])
    with pytest.raises(ConfigError, match=r"'odd' returned.*scalar tensor"):
        policy.learn_on_batch(small_worker(policy).sample())


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("nothing", r"='nothing' is not an import path; expected 'package\.module:Name'"),
        ("math:pi", r"='math:pi' is number; expected the import path of a function"),
        ({"weight": 2.0}, "import path"),
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
