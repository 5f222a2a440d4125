"""Each broken promise of the multi-agent API is one clear error before training."""

from __future__ import annotations

import pytest
from gymnasium import spaces

from lightning_rl.envs import EnvCreator
from lightning_rl.errors import EnvError
from tests.envs.multi_agent import broken_envs as broken


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (broken.NoAgents, "has possible_agents=None; expected a list of names"),
        (broken.NoSpaces, "has observation_spaces=None; expected a dict with a space for each agent"),
        (broken.MissingSpace, r"has action_spaces\['b'\]=None"),
        (broken.Numbered, r"has observation_spaces\['agent_0'\]=None"),
        (broken.OldReset, r"expected reset\(self, \*, seed=None, options=None\)"),
        (broken.OnlyObs, "reset returned dict"),
        (broken.Stranger, r"'c'.*possible_agents=\['a', 'b'\]"),
        (broken.Outside, r"'a'.*observation_space"),
        (broken.OldStep, "step returned 4"),
        (broken.NoAll, '"__all__"'),
        (broken.NaNReward, r"'b'.*nan"),
        (broken.BackFromTheDead, r"step 1.*'a'"),
        (broken.ChangingSpaces, "spaces of 'a'"),
        (broken.NoTurns, "20 steps"),
        (broken.WrongState, r"state\(\).*state_space"),
        (broken.Raises, r"ZeroDivisionError in step 0.*no wheels"),
    ],
)
def test_each_broken_promise_is_one_clear_error(env: type, message: str) -> None:
    with pytest.raises(EnvError, match=message) as error:
        EnvCreator(env).spaces()
    assert "\n" not in str(error.value) and env.__name__ in str(error.value)


def test_a_good_environment_raises_no_false_alarm() -> None:
    observed, acted = EnvCreator(broken.Fine).spaces()
    assert observed == spaces.Dict(broken.Fine().observation_spaces) and acted == spaces.Dict(
        broken.Fine().action_spaces
    )


def test_the_check_can_be_turned_off() -> None:
    EnvCreator(broken.NaNReward, check=False).spaces()
