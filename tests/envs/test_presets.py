"""The presets of `conf/env` that this package or a light extra can make, and how many agents they have."""

from __future__ import annotations

import pytest

from lightning_rl.config import compose_config
from lightning_rl.envs import EnvCreator

AGENTS = {
    **dict.fromkeys(("bit_flipping", "hidden_coin", "parametric_cartpole", "point_reach"), (1, "numpy")),
    **dict.fromkeys(("repeat_after_me", "stateless_cartpole", "stateless_pendulum"), (1, "numpy")),
    **dict.fromkeys(("climbing", "rock_paper_scissors", "two_step_game"), (2, "numpy")),
    "connect_four": (2, "pettingzoo"),
    "lbf": (2, "lbforaging"),
    "multi_agent_cartpole": (4, "gymnasium"),
    "simple_speaker_listener": (2, "mpe2"),
    "simple_spread": (3, "mpe2"),
    "simple_tag": (4, "mpe2"),
}


@pytest.mark.parametrize("env", AGENTS)
def test_a_preset_passes_the_environment_check_with_its_agents(env: str) -> None:
    count, package = AGENTS[env]
    pytest.importorskip(package, reason='needs pip install -e ".[multiagent]"')
    creator = EnvCreator(**compose_config([f"env={env}"])["env"])
    creator.spaces()
    layout = creator.layout()
    assert count == (1 if layout is None else len(layout.agents))


def test_any_pettingzoo_module_and_groups_can_be_named_on_the_command_line() -> None:
    pytest.importorskip("mpe2", reason='needs pip install -e ".[multiagent]"')
    overrides = ["env=pettingzoo", "env.id=mpe2.simple_tag_v3", "env.group_agents={hunters: [adversary_*]}"]
    layout = EnvCreator(**compose_config(overrides)["env"]).layout()
    assert layout is not None and layout.agents == ("hunters", "agent_0")
