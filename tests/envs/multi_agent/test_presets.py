"""The presets of `conf/env` with several agents can be made, and say how many agents there are."""

from __future__ import annotations

import pytest

from lightning_rl.config.compose import compose_config
from lightning_rl.envs import EnvCreator

AGENTS = {
    "climbing": (2, "numpy"),
    "connect_four": (2, "pettingzoo"),
    "lbf": (2, "lbforaging"),
    "multi_agent_cartpole": (4, "gymnasium"),
    "rock_paper_scissors": (2, "numpy"),
    "simple_speaker_listener": (2, "mpe2"),
    "simple_spread": (3, "mpe2"),
    "simple_tag": (4, "mpe2"),
    "two_step_game": (2, "numpy"),
}


@pytest.mark.parametrize("env", AGENTS)
def test_a_preset_makes_its_agents(env: str) -> None:
    count, package = AGENTS[env]
    pytest.importorskip(package, reason='needs pip install -e ".[multiagent]"')
    layout = EnvCreator(**compose_config([f"env={env}"])["env"]).layout()
    assert layout is not None and len(layout.agents) == count


def test_any_pettingzoo_module_and_groups_can_be_named_on_the_command_line() -> None:
    pytest.importorskip("mpe2", reason='needs pip install -e ".[multiagent]"')
    overrides = ["env=pettingzoo", "env.id=mpe2.simple_tag_v3", "env.group_agents={hunters: [adversary_*]}"]
    layout = EnvCreator(**compose_config(overrides)["env"]).layout()
    assert layout is not None and layout.agents == ("hunters", "agent_0")
