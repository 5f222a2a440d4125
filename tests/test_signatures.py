"""Types and ranges from annotations: what a constructor refuses, and what it takes in another form."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import gymnasium as gym
import numpy as np
import yaml

from lightning_rl import build_policy
from lightning_rl.callbacks import RLCheckpoint, StopCallback
from lightning_rl.config.groups import shipped_conf
from lightning_rl.data import ReplayDataModule, ReplayFeed, RolloutDataModule
from lightning_rl.envs.creator import EnvCreator
from lightning_rl.errors import import_object
from lightning_rl.exploration import STRATEGIES, EpsilonGreedy
from lightning_rl.policies import DQN, PPO, SAC, ScratchPolicy
from lightning_rl.rollouts.processes.limits import Limits
from lightning_rl.runs.algorithm import Algorithm
from lightning_rl.schedules import Schedule
from lightning_rl.schema.ranges import Count, NonNegativeSchedule, Portion, Probability, Range
from lightning_rl.schema.signatures import Section, coerce, keywords_of, spell_type, with_tuples
from tests.refusals import refused, refused_key
from tests.run_comparison import checked_config

OBS, ACTIONS, BOX = gym.spaces.Box(-1, 1, (3,)), gym.spaces.Discrete(2), gym.spaces.Box(-1, 1, (2,))
NAN, INF = math.nan, math.inf


# -- values -----------------------------------------------------------------------------------------------------------
def test_a_fitting_value_is_returned_in_the_type_of_the_hint():
    for hint, value, found in (
        (int, 1e5, 100_000),
        (Count, np.int64(3), 3),
        (float, 3, 3),
        (float, np.float32(0.5), 0.5),
        (Count | None, None, None),
        (Sequence[Count], [64.0, 32], [64, 32]),
        (Sequence[int], (1.0,), (1,)),
        (Mapping[str, int], {"a": 2.0}, {"a": 2}),
        (float | Literal["auto"] | None, "auto", "auto"),
        (NonNegativeSchedule, [[0, 1.0], [10, 0.0]], [[0, 1.0], [10, 0.0]]),
        (NonNegativeSchedule | None, None, None),
        (Any, object, object),
        (Probability, 1, 1),
        (Portion, 1.0, 1.0),
    ):
        result = coerce("key", value, hint)
        assert (result, type(result)) == (found, type(found)), (hint, value)


def test_an_unchanged_value_is_returned_as_the_same_object():
    config = {"a": [1, 2], "b": {"c": 0.5}}
    assert coerce("key", config, Mapping[str, Any]) is config
    assert coerce("key", config["a"], Sequence[int]) is config["a"]


def test_a_value_that_does_not_fit_is_refused_with_its_key():
    """The key is that of the entry, if the value is a list or a mapping; more cases are in the golden file."""
    cases = (
        (Sequence[Count], [64, "x"], "key[1]"),
        (Sequence[Count] | None, [64, "x"], "key[1]"),
        (Mapping[str, int], {"a": "b"}, "key.a"),
        (Schedule, {"type": ["linear"]}, "key.type"),
        *((float, value, "key") for value in (NAN, INF)),
        *((hint, 1, "key") for hint in (Literal["a", "b"], Annotated[float, Range(0, 1, below_high=True)])),
        *((NonNegativeSchedule, value, "key") for value in ([[0, 1.0], [10, -1.0]], "x")),
    )
    assert [refused_key(coerce, "key", value, hint) for hint, value, _ in cases] == [key for *_, key in cases]
    long = "x" * 10 + "\n" + 1000 * "y"
    assert coerce("key", long, str) == long


def test_a_hint_reads_as_words():
    assert spell_type(Probability) == "number between 0 and 1"
    assert spell_type(Count | None) == "integer of at least 1 or null"
    assert spell_type(float | Literal["auto"] | None) == "number, auto or null"


# -- constructors -----------------------------------------------------------------------------------------------------
def test_a_constructor_refuses_values_outside_of_its_annotations():
    """More cases are in the golden file."""
    cases: tuple[tuple[Any, tuple[Any, ...], str, Any], ...] = (
        (PPO, (OBS, ACTIONS), "policy.gae_lambda", 7),
        (PPO, (OBS, ACTIONS), "policy.passes", 0),
        (PPO, (OBS, ACTIONS), "policy.clip", -0.2),
        (PPO, (OBS, ACTIONS), "policy.max_grad_norm", INF),
        (PPO, (OBS, ACTIONS), "policy.seed", 5_000_000_000),
        (PPO, (OBS, ACTIONS), "policy.optimizer_kwargs", {"eps": -1}),
        (PPO, (OBS, ACTIONS), "policy.lr", 1e30),
        (DQN, (OBS, ACTIONS), "policy.huber_delta", 0),
        (DQN, (OBS, ACTIONS), "policy.v_min", INF),
        (SAC, (OBS, BOX), "policy.critic_lr_scale", -1),
        (EpsilonGreedy, (ACTIONS,), "exploration.initial_epsilon", 2),
        (ReplayDataModule, ("CartPole-v1",), "data.priority_alpha", 2),
        (ReplayDataModule, ("CartPole-v1",), "data.capacity", 0),
        (RLCheckpoint, ("x",), "checkpoint.every_seconds", INF),
        (RLCheckpoint, ("x",), "checkpoint.max_failures", 0),
        (StopCallback, (), "stop.seconds", INF),
    )
    for target, arguments, key, value in cases:
        assert refused(target, *arguments, **{key.rpartition(".")[2]: value}) == (key, value)
    assert refused(EpsilonGreedy, ACTIONS, 2) == ("exploration.initial_epsilon", 2)
    datamodule = partial(RolloutDataModule, "CartPole-v1")
    assert refused(datamodule, {"envs_per_worker": 0}) == ("workers.envs_per_worker", 0)
    assert refused(datamodule, None, {"episodes": -1}) == ("evaluation.episodes", -1)
    flase = {"use_lstm": "flase"}
    assert refused(PPO, OBS, ACTIONS, model=flase) == ("model.use_lstm", "flase")
    assert refused(PPO, OBS, ACTIONS, optimizer_kwargs={"lr": 1.0}) == ("policy.optimizer_kwargs.lr", 1.0)


def test_whole_floats_become_integers_where_these_belong():
    policy = PPO(OBS, ACTIONS, passes=2.0, model={"fcnet_hiddens": [8.0]})
    assert (policy.passes, type(policy.passes)) == (2, int)
    assert ReplayFeed(capacity=1e5).capacity == 100_000
    algorithm = Algorithm("ppo", "CartPole-v1", config={"total_env_steps": 1e4, "workers": {"fragment_length": 8.0}})
    assert repr(algorithm.config["total_env_steps"]) == "10000"
    assert repr(algorithm.config["workers"]["fragment_length"]) == "8"


def test_an_id_is_enough_of_an_environment():
    assert RolloutDataModule("CartPole-v1").env == EnvCreator("CartPole-v1")


class Own(PPO):
    """A user's subclass: own keywords with and without annotations, one that names what is not there."""

    def __init__(
        self,
        observation_space: Any,
        action_space: Any,
        *,
        strength: float = 1.0,
        rounds: Count = 3,
        table: Nowhere | None = None,  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore
        anything=None,  # type: ignore[no-untyped-def]
        **keywords: Any,
    ) -> None:
        super().__init__(observation_space, action_space, **keywords)
        self.rounds, self.table, self.anything = rounds, table, anything


def test_a_users_subclass_is_checked_by_its_own_annotations_and_by_those_of_its_base():
    policy = Own(OBS, ACTIONS, rounds=2.0, table="any", anything=-1)
    assert (policy.rounds, policy.table, policy.anything) == (2, "any", -1)
    assert refused(Own, OBS, ACTIONS, strength="x") == ("policy.strength", "x")
    assert refused(Own, OBS, ACTIONS, rounds=0) == ("policy.rounds", 0)
    assert refused(Own, OBS, ACTIONS, gamma=7) == ("policy.gamma", 7)


def zero_loss(policy: Any, model: Any, dist_class: Any, batch: Any) -> Any:
    return model(batch)[0].sum() * 0


Functional = build_policy("Functional", loss_fn=zero_loss, get_default_config=lambda: {"gamma": 0.5, "own": 3})


def test_a_policy_made_of_functions_is_checked():
    assert Functional(OBS, ACTIONS).gamma == 0.5
    assert refused(Functional, OBS, ACTIONS, gamma=5) == ("policy.gamma", 5)


class Scratch(ScratchPolicy):
    """Written from scratch, with a constructor that takes a config."""

    def __init__(self, observation_space, action_space, config):  # type: ignore[no-untyped-def]
        super().__init__(observation_space, action_space, config)

    def compute_actions(self, obs, state=(), **given):  # type: ignore[no-untyped-def]
        return [0] * len(obs), [], {}

    def learn_on_batch(self, batch):  # type: ignore[no-untyped-def]
        return {}


def test_the_config_of_a_policy_from_scratch_is_not_checked():
    assert Scratch(OBS, ACTIONS, {"gamma": "many"}).config == {"gamma": "many"}


def test_arguments_by_place_are_not_matched_with_keywords() -> None:
    class Mine(PPO):
        def __init__(self, *args: Any, passes: Count = 3, **keywords: Any) -> None:
            super().__init__(*args, passes=passes, **keywords)

    assert Mine(OBS, ACTIONS, passes=2).passes == 2
    assert refused(Mine, OBS, ACTIONS, passes=0) == ("policy.passes", 0)


# -- one place --------------------------------------------------------------------------------------------------------
def shipped_constructors() -> list[Any]:
    """Every class whose keywords are config keys."""
    files = [*(shipped_conf() / "policy").glob("*.yaml"), *(shipped_conf() / "data").glob("*.yaml")]
    targets = {yaml.safe_load(file.read_text()).get("_target_") for file in files} - {None}
    classes = [import_object(path) for path in (*sorted(targets), *STRATEGIES.values())]
    return [*classes, EnvCreator, Limits, RLCheckpoint, StopCallback]


ANY_NUMBER = (".v_min", ".v_max", ".target_return", ".lagrangian_thresh")


def shipped_keywords() -> list[tuple[str, Any]]:
    """Class and name, and the keyword of its constructor."""
    found = [(target, keywords_of(target).items()) for target in shipped_constructors()]
    return [(f"{target.__name__}.{name}", keyword) for target, keywords in found for name, keyword in keywords]


def test_every_numeric_keyword_of_the_package_has_a_range():
    without = []
    for name, keyword in shipped_keywords():
        if isinstance(keyword.default, bool) or not isinstance(keyword.default, int | float):
            continue
        hints = (keyword.annotation, *getattr(keyword.annotation, "__args__", ()))
        ranged = any(isinstance(mark, Range) for hint in hints for mark in getattr(hint, "__metadata__", ()))
        if not ranged and not name.endswith(ANY_NUMBER):
            without.append(name)
    assert without == []


def test_every_default_of_the_package_fits_its_own_annotation():
    for name, keyword in shipped_keywords():
        if keyword.default is not keyword.empty and not repr(keyword.default).startswith("<factory"):
            coerce(name, keyword.default, keyword.annotation)


def test_errors_name_the_keys_of_a_section_by_the_section():
    section = Section("section", (Limits,))
    hint = Annotated[Mapping[str, Any], section]
    assert refused(coerce, "elsewhere", {"max_restarts": -1}, hint) == ("section.max_restarts", -1)


def test_a_config_names_the_key_and_takes_whole_floats(tmp_path: Path):
    config = checked_config(f"run_dir={tmp_path}", "total_env_steps=1e5", "data=replay", "policy=dqn", "seed=2.0")
    assert (repr(config["total_env_steps"]), repr(config["seed"])) == ("100000", "2")


def test_lists_for_a_function_without_a_signature_stay_lists():
    assert with_tuples(max, {"key": [1]}) == {"key": [1]}
