"""What takes seconds and is the same for many tests: composing configs, and starting Ray."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from omegaconf import DictConfig, flag_override

from lightning_rl.config import compose
from lightning_rl.config.groups import is_path, user_confs
from tests.trained_runs import TrainedRuns, shared_directory

RUN_DIR = re.compile(r"run_dir=('?)(/[\w/.-]+)\1")
shares_ray = pytest.StashKey[bool]()  # whether Ray's session of this process is the one that tests share


def needs_own_ray_session(test: pytest.Item) -> bool:
    """Whether a test is marked `ray(own_session=True)`, as it starts or ends Ray's session itself."""
    mark = test.get_closest_marker("ray")
    return mark is not None and mark.kwargs.get("own_session", False)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests with a Ray session of their own last, so that the shared one starts once."""
    items.sort(key=needs_own_ray_session)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Start Ray for the first test marked `ray`, and keep it for the next ones: a run uses a session that is there."""
    if item.get_closest_marker("ray") is None:
        return
    import ray

    from lightning_rl.rollouts.ray.session import start_ray, stop_ray

    if not needs_own_ray_session(item):
        if not ray.is_initialized():
            start_ray(num_workers=4)
        item.config.stash[shares_ray] = True
    elif item.config.stash.get(shares_ray, False):
        while ray.is_initialized():  # once for each set of workers that a test has not stopped
            stop_ray()
        item.config.stash[shares_ray] = False


@pytest.fixture(scope="session")
def session_directory(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A directory that all processes of this session share."""
    return shared_directory(tmp_path_factory, worker_id)


@pytest.fixture(scope="session", autouse=True)
def environment_of_the_tests(session_directory: Path) -> Iterator[None]:
    """Sign runs with another key than the user's, and let `ray.init()` join no cluster, which may be a dead one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", "local")
        patch.setenv("XDG_CONFIG_HOME", str(session_directory / "config"))
        yield


@pytest.fixture(scope="session")
def trained_runs(session_directory: Path) -> TrainedRuns:
    """Short trained runs that all processes share; see `TrainedRuns`."""
    return TrainedRuns(session_directory)


@pytest.fixture(scope="session", autouse=True)
def composed_once() -> Iterator[None]:
    """Keep what Hydra composed of the shipped groups, for which it needs 0.1 s; a test's own are not kept.

    Configs that differ in a plain path of `run_dir` alone are composed once.
    """
    kept: dict[tuple[str, ...], bytes] = {}
    composed = compose.composed

    def composed_or_kept(overrides: Sequence[str]) -> DictConfig:
        policies = [override.removeprefix("policy=") for override in overrides if override.startswith("policy=")]
        if user_confs() or any(map(is_path, policies)):
            return composed(overrides)
        given = {override: found[2] for override in overrides if (found := RUN_DIR.fullmatch(override))}
        key = tuple("run_dir=/" if override in given else override for override in overrides)
        if key not in kept:
            kept[key] = pickle.dumps(composed(key))
        config = pickle.loads(kept[key])
        with flag_override(config, ["struct", "readonly"], False):
            for override, path in given.items():
                task = config.hydra.overrides.task
                config.run_dir, task[task.index("run_dir=/")] = path, override
        return config

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compose, "composed", composed_or_kept)
        yield
