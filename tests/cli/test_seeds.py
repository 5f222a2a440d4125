"""`seeds=0..9` is the sweep over these seeds."""

from __future__ import annotations

from pathlib import Path

import pytest

from lightning_rl.cli.train import with_seeds
from tests.cli.conftest import Command, not_refused
from tests.edited_runs import config_of

SHORT = ("total_env_steps=300", "workers.fragment_length=16", "policy.passes=1", "evaluation=none", "logger=none")


def test_a_range_and_a_list_become_a_sweep():
    assert with_seeds(["policy=ppo", "seeds=0..3"]) == ["policy=ppo", "seed=0,1,2,3"]
    assert with_seeds(["seeds=7,1"]) == ["seed=7,1"] and with_seeds(["seeds=4"]) == ["seed=4"]
    assert with_seeds(["seed=3"]) == ["seed=3"]


@pytest.mark.parametrize("how", [("seeds=1..2",), ("--seeds", "1..2")])
def test_each_seed_has_its_run_and_the_table_comes_at_the_end(how: tuple[str, ...], command: Command, tmp_path: Path):
    outcome = command("train", "policy=ppo", *how, "run_dir=sweep", *SHORT)
    assert outcome.code == 0, outcome.err
    assert [config_of(job)["seed"] for job in sorted((tmp_path / "sweep").glob("?_*"))] == [1, 2]
    assert outcome.out.splitlines()[-3].split()[:2] == ["runs", "return"] and " ± " in outcome.out.splitlines()[-2]


def test_what_cannot_be_meant_is_one_line(command: Command):
    cases = {
        "train seeds=3..1": "seeds=3..1; expected one range",
        "train seeds=0..": "seeds=0..; expected one range",
        "train seeds=a": "seeds=a; expected one range",
        "train seeds=0..1 seed=4": "seeds=0..1 seed=4; expected one range",
        "train seeds=0..1 --seeds 2..3": "seeds=0..1 seeds=2..3; expected one range",
    }
    assert not_refused(command, cases) == {}
