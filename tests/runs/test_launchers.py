"""The resources that launchers request of a cluster, which is faked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lightning_rl.config import compose_config
from lightning_rl.rollouts.ray import train as ray_train
from lightning_rl.runs.launchers import RayTrainLauncher


class RequestError(Exception):
    """Resources that the launcher requested."""


def bundle(monkeypatch: pytest.MonkeyPatch, gpus: int, accelerator: str, **launcher: Any) -> dict[str, float]:
    """The resources of each rank on a cluster with these GPUs."""

    def room(count: int, placement: str, resources: dict[str, float], *_: Any, **__: Any) -> None:
        raise RequestError(resources)

    monkeypatch.setattr(ray_train, "_ray_train", lambda: (None, None, None))
    monkeypatch.setattr(ray_train, "start_ray", lambda *_, **__: False)
    monkeypatch.setattr(ray_train.ray, "cluster_resources", lambda: {"CPU": 8.0, **({"GPU": gpus} if gpus else {})})
    monkeypatch.setattr(ray_train, "Reservation", room)
    config = compose_config(["rank_launcher=ray_train", f"trainer.accelerator={accelerator}", "run_dir=out"])
    with pytest.raises(RequestError) as raised:
        RayTrainLauncher(**launcher).launch(config, Path("last.ckpt"))
    return raised.value.args[0]


def test_the_accelerator_auto_is_a_gpu_where_the_cluster_has_any(monkeypatch: pytest.MonkeyPatch) -> None:
    assert bundle(monkeypatch, 4, "auto") == {"CPU": 1, "GPU": 1}
    assert bundle(monkeypatch, 0, "auto") == {"CPU": 1} and bundle(monkeypatch, 4, "cpu") == {"CPU": 1}
    assert bundle(monkeypatch, 0, "gpu") == {"CPU": 1, "GPU": 1}  # and there is no room
    assert bundle(monkeypatch, 4, "auto", resources={"GPU": 0}) == {"CPU": 1, "GPU": 0}
