"""Each broken promise of the multi-agent API is one clear error before training."""

from __future__ import annotations

import pytest
from gymnasium import spaces

from lightning_rl.envs import EnvCreator
from lightning_rl.errors import EnvError
from tests.envs.multi_agent.broken_envs import (
    BackFromTheDead,
    ChangingSpaces,
    Fine,
    MissingSpace,
    NaNReward,
    NoAgents,
    NoAll,
    NoSpaces,
    NoTurns,
    Numbered,
    OldReset,
    OldStep,
    OnlyObs,
    Outside,
    Raises,
    Stranger,
    WrongState,
)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (NoAgents, "has possible_agents=None; expected a list of names"),
        (NoSpaces, "has observation_spaces=None; expected a dict with a space for each agent"),
        (MissingSpace, r"has action_spaces\['b'\]=None"),
        (Numbered, r"has observation_spaces\['agent_0'\]=None"),
        (OldReset, r"expected reset\(self, \*, seed=None, options=None\)"),
        (OnlyObs, "reset returned dict"),
        (Stranger, r"'c'.*possible_agents=\['a', 'b'\]"),
        (Outside, r"'a'.*observation_space"),
        (OldStep, "step returned 4"),
        (NoAll, '"__all__"'),
        (NaNReward, r"nan.*'b'"),
        (BackFromTheDead, r"step 1.*'a'"),
        (ChangingSpaces, "spaces of 'a'"),
        (NoTurns, "20 steps"),
        (WrongState, r"state\(\).*state_space"),
        (Raises, r"ZeroDivisionError in step 0.*no wheels"),
    ],
)
def test_each_broken_promise_is_one_clear_error(broken: type, message: str) -> None:
    with pytest.raises(EnvError, match=message) as error:
        EnvCreator(broken).spaces()
    assert "\n" not in str(error.value) and broken.__name__ in str(error.value)


def test_a_good_environment_raises_no_false_alarm() -> None:
    observed, acted = EnvCreator(Fine).spaces()
    assert observed == spaces.Dict(Fine().observation_spaces) and acted == spaces.Dict(Fine().action_spaces)


def test_the_check_can_be_turned_off() -> None:
    EnvCreator(NaNReward, check=False).spaces()
