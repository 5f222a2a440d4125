"""Estimates what the policy in training would return, from recorded episodes, at each evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer

from lightning_rl.data.offline.data_set import read_episodes
from lightning_rl.data.offline.source import OfflineSource
from lightning_rl.data.offline.steps import episodes_for
from lightning_rl.errors import ConfigError, short_repr
from lightning_rl.policies.off_policy_estimation import Estimate, check_estimators, estimate_value
from lightning_rl.schema.signatures import coerce_keywords, hints_of

__all__ = ["OffPolicyEvaluation"]

READ_AS = ("input", "columns", "actions_normalized", "skip_damaged")  # keys of `data` about the data set


class OffPolicyEvaluation(Callback):
    """Logs `eval/NAME`, `eval/NAME_low` and `eval/NAME_high` for each estimator and for "behavior".

    Args:
        estimators: see `estimate_value`.
        data: share of the episodes of data=offline that are held out from learning, in (0, 1); or another data set:
            its `input`, or a mapping with `input` and any of `columns`, `actions_normalized` and `skip_damaged`, which
            have the values of the run's `data` otherwise.
        options: other keywords of `estimate_value`: epsilon, gamma, confidence, fqe_steps, seed.

    Raises:
        ConfigError: an estimator, or a key of `data`, is unknown.
    """

    def __init__(
        self,
        estimators: Sequence[str],
        data: float | str | Mapping[str, Any] = 0.1,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        check_estimators(estimators)
        if isinstance(data, str):
            data = {"input": data}
        if isinstance(data, Mapping):
            keys = {key: hint for key, hint in hints_of(OfflineSource).items() if key in READ_AS}
            how = coerce_keywords("evaluation.data", data, keys)
            if how.get("input") is None:
                raise ConfigError(f"evaluation.data={short_repr(how)} has no input: name the directory or the file")
            data = how
        self.data = data  # a share, or how a data set is read
        self.estimators, self.options = tuple(estimators), dict(options or {})
        self._episodes: Any = None  # a fragment

    def setup(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        """Read the episodes, once, and estimate with few steps, so that what does not fit is refused at the start.

        Raises:
            ConfigError: there are no such data, or as `estimate_value`.
        """
        if self._episodes is not None:
            return
        if pl_module.agents:
            raise ConfigError("evaluation.estimators: the policy of one agent is estimated, and this run has several")
        source = trainer.datamodule.source  # pyright: ignore[reportAttributeAccessIssue]
        if isinstance(self.data, Mapping):
            how = {name: getattr(source, name) for name in READ_AS if hasattr(source, name)} | dict(self.data)
            self._episodes = read_episodes(pl_module, how.pop("input"), **how)
        else:
            if not hasattr(source, "held_out"):
                raise ConfigError(
                    f"evaluation.data={self.data} is a share of the episodes of data=offline; other runs name a data "
                    "set with evaluation.data=DIR, or evaluation.data={input: log.csv, columns: …}"
                )
            source.prepare(pl_module)
            self._episodes = episodes_for(pl_module, source.held_out, str(source.input))
        self.estimate(pl_module, fqe_steps=1)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Log the estimates beside the returns of the episodes that were played."""
        if trainer.sanity_checking:
            return
        with trainer.datamodule.evaluator.reported_policy(pl_module):  # pyright: ignore[reportAttributeAccessIssue]
            found = self.estimate(pl_module)
        pl_module.log_dict(found, logger=trainer.state.fn != "fit", batch_size=1, sync_dist=True)

    def estimate(self, policy: Any, **changes: Any) -> dict[str, float]:
        """The estimates of a policy by metric names.

        Args:
            policy: the policy of the run.
            changes: keywords of `estimate_value` in the place of the options.
        """
        with torch.inference_mode(False), torch.enable_grad():  # fitted Q evaluation learns, within an evaluation
            found = estimate_value(policy, self._episodes, estimators=self.estimators, **{**self.options, **changes})
        metrics: dict[str, float] = {}
        for name, value in found.items():
            if isinstance(value, Estimate):
                ends = {"": value.value, "_low": value.low, "_high": value.high}
                metrics |= {f"eval/{name}{end}": number for end, number in ends.items()}
            else:
                metrics[f"eval/{name}"] = value
        return metrics
