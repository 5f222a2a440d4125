"""TensorBoard's first page: texts about a run, and a layout of its curves."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tensorboard.plugins.custom_scalar import layout_pb2

from lightning_rl.callbacks.metric_names import METRICS
from lightning_rl.callbacks.run_description import CHARTS, charts_of
from lightning_rl.cli import main
from tests.callbacks.log_files import events_of
from tests.edited_runs import config_of
from tests.trained_runs import train


def texts(directory: Path, tag: str) -> list[tuple[int, str]]:
    return [(step, content.decode()) for step, content in tensors(directory, f"{tag}/text_summary")]


def layouts(directory: Path) -> list[tuple[int, Any]]:
    found = tensors(directory, "custom_scalars__config__")
    return [(step, layout_pb2.Layout.FromString(content)) for step, content in found]


def tensors(directory: Path, tag: str) -> list[tuple[int, bytes]]:
    return [(each.step, each.tensor_proto.string_val[0]) for each in events_of(directory, "tensors").Tensors(tag)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, resumed once."""
    evaluated = ("evaluation.every_env_steps=50%", "evaluation.episodes=1")
    directory = train(tmp_path_factory.mktemp("runs") / "run", "env=cartpole", "total_env_steps=1000", *evaluated)
    assert main(["resume", str(directory), "total_env_steps=2000"]) == 0
    return directory


def test_config_command_and_versions_stand_at_the_beginning_and_where_the_run_went_on(run: Path):
    (start, before), (went_on, after) = texts(run / "tb", "run/config")
    configs = [yaml.safe_load(text.removeprefix("```yaml\n").removesuffix("```")) for text in (before, after)]
    assert [config["total_env_steps"] for config in configs] == [1000, 2000]
    assert configs[1] == config_of(run)
    assert start == 0 < went_on
    assert [step for step, _ in texts(run / "tb", "run/command")] == [0, went_on]
    versions = texts(run / "tb", "run/versions")[0][1]
    assert re.search(r"\| torch \| \d", versions) and re.search(r"\| gymnasium \| \d", versions)


def test_the_layout_begins_with_returns_and_shows_only_what_the_run_has(run: Path):
    _, layout = layouts(run / "tb")[-1]
    first = layout.category[0].chart[0]
    assert layout.category[0].title == "1 Is it getting better?"
    tags = ["rollout/ep_rew_mean", "eval/ep_rew_mean", "rollout/agent_0/ep_rew_mean", "train/loss"]
    assert [bool(re.search(first.multiline.tag[0], tag)) for tag in tags] == [True, True, True, False]
    charts = {chart.title for category in layout.category for chart in category.chart}
    assert {"losses", "environment steps per second", "explained variance"} <= charts
    assert not {"Q-values and TD error", "self-play: Elo and win rate"} & charts


def test_a_resumed_run_does_not_repeat_the_layout_at_each_epoch(run: Path):
    steps = [step for step, _ in layouts(run / "tb")]
    assert len(steps) <= 4  # at most two of each process: at its start, and when losses or evaluations came


def test_every_chart_shows_a_metric_of_the_registry():
    assert [chart for _, chart, pattern in CHARTS if not any(re.search(pattern, name) for name in METRICS)] == []


def test_charts_come_with_their_metrics():
    assert charts_of([]) == {CHARTS[0][0]: {CHARTS[0][1]: ["Multiline", [CHARTS[0][2]]]}}
    found = charts_of(["train/hunter/q_mean", "time/fps"])
    assert [*found] == [CHARTS[0][0], "2 Is it learning soundly?", "3 How fast is it?"]
    assert [*found["2 Is it learning soundly?"]] == ["Q-values and TD error"]
