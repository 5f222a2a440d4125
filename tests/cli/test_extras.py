"""Extras of pyproject.toml: each has a test that uses it, skipped without the extra; CI installs them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.cli.conftest import Command

ROOT = Path(__file__).parents[2]
USES = {
    "box2d": "tests/cli/test_extras.py",
    "mujoco": "tests/cli/test_extras.py",
    "atari": "tests/envs/test_atari.py",
    "multiagent": "tests/envs/test_presets.py",
    "video": "tests/cli/test_video.py",
    "export": "tests/cli/test_export.py",
    "offline": "tests/data/offline/test_shards.py",
    "sweep": "tests/cli/test_tune.py",
    "cluster": "tests/test_tune.py",
    "slurm": "tests/cli/test_multirun.py",
    "wandb": "tests/callbacks/test_experiment_trackers.py",
    "mlflow": "tests/callbacks/test_experiment_trackers.py",
    "bench": "tests/test_learning_curves.py",
    "docs": "tests/test_site.py",
}
TOOLS = {"test", "dev", "all"}  # what the tests, the checks and everything together need


def test_every_extra_has_a_test_that_uses_it() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras.keys() - TOOLS == USES.keys()
    assert [file for file in USES.values() if not (ROOT / file).is_file()] == []
    assert set(extras["all"][0].removeprefix("lightning_rl[").removesuffix("]").split(",")) == extras.keys() - {"all"}


def test_constraints_name_a_version_of_every_package_that_an_extra_names() -> None:
    """Of those that these need in turn, `.ci/versions` looks."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [*project["dependencies"], *(each for extra in project["optional-dependencies"].values() for each in extra)]
    constrained = {line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines()}

    def normal(name: str) -> str:
        return re.sub(r"[-_.]+", "-", name).lower()

    packages = {normal(re.split(r"[\[<>=!~; ]", each, maxsplit=1)[0]) for each in named} - {"lightning-rl"}
    assert packages <= {normal(name) for name in constrained}


@pytest.mark.parametrize(
    ("extra", "package", "policy", "env"),
    [
        ("box2d", "Box2D", "ppo", "lunarlander"),
        ("box2d", "Box2D", "sac", "lunarlander_continuous"),
        ("mujoco", "mujoco", "ppo", "halfcheetah"),
    ],
)
def test_environments_of_an_extra_train_and_are_evaluated(
    command: Command, extra: str, package: str, policy: str, env: str
) -> None:
    pytest.importorskip(package, reason=f'needs pip install -e ".[{extra}]"')
    few = ("experiment=none", "evaluation=none", "logger=none", "workers.fragment_length=16")
    outcome = command("train", f"policy={policy}", f"env={env}", "total_env_steps=256", "run_dir=out", *few)
    assert outcome.code == 0, outcome.err
    assert "ok: out" in outcome.out
    assert command("evaluate", "out", "--episodes", "1").code == 0
