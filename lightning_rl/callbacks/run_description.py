"""What TensorBoard says of a run beside its curves: config, command, versions, and which curves tell the story."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import yaml
from lightning.pytorch import Callback, Trainer

from lightning_rl.callbacks.loggers import log_summary
from lightning_rl.callbacks.metrics import latest_metrics
from lightning_rl.errors import has_import_path, import_path, short_repr
from lightning_rl.run_directory.provenance import command_line, versions

__all__ = ["CHARTS", "RunDescription", "charts_of"]

ANY = r"(.*/)?"  # a policy of several
CHARTS: tuple[tuple[str, str, str], ...] = (
    # category, chart, pattern of its metrics
    ("1 Is it getting better?", "return: training and evaluation", rf"^(rollout|eval)/{ANY}ep_rew_mean$"),
    ("1 Is it getting better?", "episode length", rf"^(rollout|eval)/{ANY}ep_len_mean$"),
    ("1 Is it getting better?", "self-play: Elo and win rate", r"^self_play/(elo|win_rate)$"),
    ("2 Is it learning soundly?", "losses", rf"^train/{ANY}(\w+_)?loss$"),
    ("2 Is it learning soundly?", "entropy, temperature", rf"^train/{ANY}(entropy|alpha)$"),
    ("2 Is it learning soundly?", "size of the policy's steps", rf"^train/{ANY}(approx_kl|kl|clip_fraction)$"),
    ("2 Is it learning soundly?", "explained variance", rf"^train/{ANY}explained_variance$"),
    ("2 Is it learning soundly?", "Q-values and TD error", rf"^train/{ANY}(q_mean|td_error)$"),
    ("2 Is it learning soundly?", "gradient norm", rf"^train/{ANY}grad_norm$"),
    ("2 Is it learning soundly?", "learning rate", rf"^train/{ANY}lr$"),
    ("2 Is it learning soundly?", "exploration", rf"^train/{ANY}exploration/(epsilon|temperature|scale|stddev)$"),
    ("3 How fast is it?", "environment steps per second", r"^time/fps$"),
    ("3 How fast is it?", "seconds of an iteration and an evaluation", r"^time/(collect|learn|eval)_s$"),
    ("3 How fast is it?", "memory, MiB", r"^sys/rss_mb$"),
)


class Dumper(yaml.SafeDumper):
    """Writes YAML for people to read: objects as text."""


def represent_object(dumper: Dumper, value: Any) -> yaml.Node:
    """A class or function by its import path, another object by its `repr`."""
    return dumper.represent_str(import_path(value) if has_import_path(value) else short_repr(value))


Dumper.add_multi_representer(object, represent_object)


class RunDescription(Callback):
    """Writes the config, the command line and versions once per process, and a layout for the Custom Scalars tab.

    A resumed run adds its own texts at the env steps where it continues. The layout has the charts whose metrics the
    run has written so far; it is written after the first evaluation, and again when there are more.

    Args:
        config: the config of the run, which has a TensorBoard logger.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = config
        self._described = False
        self._charts: dict[str, dict[str, list[Any]]] = {}

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Write the texts."""
        if self._described:
            return
        from torch.utils.tensorboard.summary import text

        self._described = True
        resolved = yaml.dump(dict(self.config), Dumper=Dumper, sort_keys=False, allow_unicode=True)
        texts = {
            "run/config": f"```yaml\n{resolved}```",
            "run/command": f"```bash\n{command_line(sys.argv)}\n```",
            "run/versions": "\n".join(["| | |", "|-|-|", *(f"| {name} | {own} |" for name, own in versions().items())]),
        }
        for tag, content in texts.items():
            log_summary(trainer, text(tag, content), int(pl_module.env_steps))

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Write the layout if there are new charts."""
        charts = charts_of(latest_metrics(trainer))
        if charts == self._charts:
            return
        from torch.utils.tensorboard.summary import custom_scalars

        self._charts = charts
        log_summary(trainer, custom_scalars(charts), int(pl_module.env_steps))


def charts_of(metrics: Iterable[str]) -> dict[str, dict[str, list[Any]]]:
    """The layout for these metrics: category → chart → ["Multiline", [pattern]], as torch's `custom_scalars` takes it.

    The chart of returns is always there, as they come with the first episode that ends.
    """
    names, layout = [*metrics], {}
    for place, (category, chart, pattern) in enumerate(CHARTS):
        if place == 0 or any(re.search(pattern, name) for name in names):
            layout.setdefault(category, {})[chart] = ["Multiline", [pattern]]
    return layout
