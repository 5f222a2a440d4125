"""Which policy acts for which agent."""

from __future__ import annotations

import re
from functools import wraps
from typing import Any

import numpy as np
import pytest

from lightning_rl.config.compose import parse_overrides
from lightning_rl.errors import ConfigError
from lightning_rl.policies.policy_mapping import EpisodeStart, PolicyMapping
from tests.refusals import not_refused

AGENTS = ("hunter_0", "hunter_1", "prey")
IDS = ("hunter", "prey", "old")


def by_name(agent_id: str) -> str:
    return agent_id.split("_")[0]


def mapping(given: Any, agents: tuple[str, ...] = AGENTS, ids: tuple[str, ...] = IDS) -> PolicyMapping:
    return PolicyMapping(given, agents, ids)


def draws(found: PolicyMapping, count: int = 50) -> list[dict[str, str]]:
    return [found.assign(np.random.default_rng(seed)) for seed in range(count)]


@pytest.mark.parametrize(
    "given",
    [
        {"hunter_*": "hunter", "*": "prey"},
        {"prey": "prey", "*": "hunter"},
        {"*_[01]": "hunter", "prey": "prey"},
        {"hunter_*": ["hunter"], "prey": "prey"},
        by_name,
        f"{__name__}:by_name",
        lambda agent_id, *args, **kwargs: agent_id.split("_")[0],
        lambda agent_id, episode, worker=None, **kwargs: agent_id.split("_")[0],
        lambda agent_id, episode=None: agent_id.split("_")[0],
    ],
)
def test_patterns_and_functions_give_each_agent_its_policy(given: Any) -> None:
    found = mapping(given)
    expected = {"hunter_0": "hunter", "hunter_1": "hunter", "prey": "prey"}
    assert found.static
    assert {agent: found.policy_of(agent) for agent in AGENTS} == expected
    assert found.assign(np.random.default_rng(0)) == expected
    assert found.agents_of("hunter") == ["hunter_0", "hunter_1"] and found.agents_of("old") == []


def test_the_first_pattern_that_matches_counts() -> None:
    found = mapping({"hunter_1": "old", "hunter_*": "hunter", "*": "prey"})
    assert [found.policy_of(agent) for agent in AGENTS] == ["hunter", "old", "prey"]


def test_an_agent_s_name_with_marks_of_patterns_matches_itself() -> None:
    assert mapping({"a[1]": "old", "*": "prey"}, ("a[1]",)).policy_of("a[1]") == "old"


def test_without_a_mapping_all_agents_have_the_only_policy_or_that_of_their_name() -> None:
    assert {mapping(None, ids=("shared",)).policy_of(agent) for agent in AGENTS} == {"shared"}
    named = mapping(None, ids=AGENTS)
    assert [named.policy_of(agent) for agent in AGENTS] == list(AGENTS)


def test_a_list_of_ids_draws_one_for_each_agent_and_episode() -> None:
    found = mapping({"prey": "prey", "*": ["hunter", "old"]})
    assert not found.static
    assert found.agents_of("old") == ["hunter_0", "hunter_1"]
    pairs = {(drawn["hunter_0"], drawn["hunter_1"]) for drawn in draws(found)}
    assert pairs == {(one, other) for one in ("hunter", "old") for other in ("hunter", "old")}
    assert draws(found) == draws(found)
    assert found.policy_of("prey") == "prey"
    with pytest.raises(ConfigError, match="'hunter_0'"):
        found.policy_of("hunter_0")


def test_a_function_of_the_generator_is_called_in_each_episode_even_if_it_gave_one_result() -> None:
    found = mapping(lambda agent_id, rng: "prey" if agent_id == "prey" else ("hunter", "old")[rng.integers(2)])
    assert not found.static and draws(found) == draws(found)
    assert {drawn["hunter_1"] for drawn in draws(found)} == {"hunter", "old"}
    rarely = mapping(lambda agent_id, rng: "prey" if rng.random() > 1e-9 else "old")
    assert not rarely.static
    with pytest.raises(ConfigError, match="'prey'"):
        rarely.policy_of("prey")


def test_a_function_with_a_generator_by_keyword_is_tried_until_its_policies_are_known() -> None:
    found = mapping(lambda agent_id, *, rng: ("hunter", "old")[rng.integers(2)])
    assert found.agents_of("hunter") == found.agents_of("old") == list(AGENTS)


def test_a_list_of_equal_ids_is_one_policy() -> None:
    found = mapping({"prey": ["prey", "prey"], "*": "hunter"})
    assert found.static and found.policy_of("prey") == "prey"


FUNCTIONS: list[tuple[Any, tuple[Any, ...], bool]] = [
    (lambda agent_id, worker: (worker,), (None,), False),
    (lambda agent_id, *, team=3: (team,), (3,), False),
    (lambda agent_id, worker, episode: (worker, episode), (None, EpisodeStart), True),
    (lambda agent_id, worker=5, episode=None: (worker, episode), (5, EpisodeStart), True),
    (lambda agent_id, start: (start,), (EpisodeStart,), True),
    (lambda agent_id, *, episode: (episode,), (EpisodeStart,), True),
    (lambda agent_id, worker, team=3: (worker, team), (None, 3), False),
    (lambda agent_id, start, team=3: (start, team), (EpisodeStart, 3), True),
    (lambda agent_id, *, team=3, episode: (team, episode), (3, EpisodeStart), True),
    (lambda episode: (), (), False),
    (lambda rng: (), (), False),
]


def test_a_function_gets_what_its_parameters_name() -> None:
    """The agent first; the episode by name or in second place; "worker" is nothing; its own defaults stay.

    A function that does not take the episode is called once for each agent, when the mapping is made.
    """
    for function, expected, by_episode in FUNCTIONS:
        seen: list[tuple[Any, ...]] = []

        @wraps(function)
        def recorded(*arguments: Any, **keywords: Any) -> str:
            seen.append(function(*arguments, **keywords))  # noqa: B023
            return "old"

        assert mapping(recorded).static
        for given in seen:
            for value, wanted in zip(given, expected, strict=True):
                assert type(value) is wanted if isinstance(wanted, type) else value == wanted
        assert (len(seen) > len(AGENTS)) == by_episode


def test_a_function_of_the_episode_that_gives_several_results_is_called_in_each() -> None:
    """As RLlib's self-play: the episode's id, one for all its agents, decides which side the learner plays."""
    given: list[tuple[EpisodeStart, str]] = []

    def choose(agent_id: str, episode: EpisodeStart, worker: Any, **kwargs: Any) -> str:
        given.append((episode, "hunter" if episode.episode_id % 2 == (agent_id == "prey") else "old"))
        return given[-1][1]

    found = mapping(choose)
    assert not found.static and {type(episode) for episode, _ in given} == {EpisodeStart}
    given.clear()
    drawn = draws(found, 1000)
    assert [policy_id for each in drawn for policy_id in each.values()] == [policy_id for _, policy_id in given]
    assert {(each["hunter_0"], each["hunter_1"], each["prey"]) for each in drawn} == {
        ("hunter", "hunter", "old"), ("old", "old", "hunter"),
    }  # fmt: skip
    assert len({episode.episode_id for episode, _ in given}) == 1000


def test_a_function_of_the_episode_may_give_an_agent_only_policies_of_its_spaces() -> None:
    found = mapping(lambda agent_id, rng: ("prey", "hunter")[rng.integers(2)])
    allowed = mapping(lambda agent_id, rng: ("prey", "old")[rng.integers(2)] if agent_id == "prey" else "hunter")
    for each in (found, allowed):
        each.restrict({"hunter": ["hunter_0", "hunter_1"], "prey": ["prey"], "old": ["prey"]})
    assert found.agents_of("old") == ["prey"]
    assert {drawn["prey"] for drawn in draws(allowed)} == {"prey", "old"}
    with pytest.raises(ConfigError, match="other spaces"):
        draws(found)


def test_a_mapping_that_cannot_work_is_refused() -> None:
    cases = [
        ({"*": "huntr"}, r"policy_mapping\['\*'\]='huntr'.*'hunter'"),
        ({"*": ["hunter", "oldd"]}, r"'oldd'.*'old'"),
        ({"prey": "prey"}, r"policy_mapping.*'hunter_0'.*'prey'"),
        ({}, r"policy_mapping.*'hunter_0'"),
        ({"*": 3}, r"policy_mapping\['\*'\]=3; expected a policy id, or a list"),
        ({"*": []}, r"policy_mapping\['\*'\]=\[\]; expected a policy id, or a list"),
        (lambda agent_id: "huntr", r"'hunter_0'.*'huntr'"),
        (lambda agent_id: None, "'hunter_0'"),
        (lambda agent_id, rng, team: "prey", "'team'"),
        (lambda agent_id, *, team: "prey", "'team'"),
        (3, "policy_mapping=3; expected"),
        ("no_such_module:fn", "no module 'no_such_module'"),
        (None, r"policy_mapping.*'hunter_0'"),
        ({"prey_*": "old", "prey": "prey", "*": "hunter"}, r"policy_mapping\['prey_\*'\].*\['hunter_0'"),
        ({"hunter_2": "old", "*": "prey"}, r"\['hunter_2'\].*'hunter_"),
        (lambda agent_id: {}[agent_id], r"KeyError.*'hunter_0': 'hunter_0'"),
    ]
    assert not_refused(mapping, cases) == []


@pytest.mark.parametrize("agent", ["fox", "a b", "a/b", "x.y", "-1", "ä☃", "[z]*", "a:b", "it's"])
def test_the_mapping_that_a_message_suggests_can_be_typed(agent: str) -> None:
    with pytest.raises(ConfigError) as error:
        mapping(None, (agent,))
    suggested = re.findall(r"Set it, such as '(.*)'$", str(error.value))
    found = parse_overrides(suggested)["policy_mapping"]
    assert [mapping(found, (agent, "another")).policy_of(name) for name in (agent, "another")] == ["hunter", "old"]


def test_an_unknown_agent_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'hunter_2'.*'hunter_"):
        mapping(by_name).policy_of("hunter_2")
