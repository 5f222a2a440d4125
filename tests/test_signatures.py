"""Types and ranges from annotations: what a constructor refuses, and what it takes in another form."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import gymnasium as gym
import numpy as np
import pytest

from lightning_rl.algorithm import Algorithm
from lightning_rl.callbacks import RLCheckpoint, StopCallback
from lightning_rl.config import compose_config
from lightning_rl.config.groups import shipped_conf
from lightning_rl.data import RolloutDataModule
from lightning_rl.data.replay_datamodule import ReplayDataModule
from lightning_rl.envs.creator import EnvCreator
from lightning_rl.errors import ConfigError, import_object
from lightning_rl.exploration import STRATEGIES, EpsilonGreedy, SoftQ
from lightning_rl.policies import DQN, PPO, SAC, ScratchPolicy, build_policy
from lightning_rl.ranges import Count, NonNegativeSchedule, Portion, Positive, Probability, Range
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.rollouts.processes.limits import Limits
from lightning_rl.schedules import Schedule
from lightning_rl.signatures import Section, coerce, keywords_of, spell_type, with_tuples
from tests.envs.classic_control import CARTPOLE

OBS, ACTIONS, BOX = gym.spaces.Box(-1, 1, (3,)), gym.spaces.Discrete(2), gym.spaces.Box(-1, 1, (2,))
NAN, INF = math.nan, math.inf


# -- values -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("hint", "value", "found"),
    [
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
    ],
    ids=str,
)
def test_a_fitting_value_is_returned_in_the_type_of_the_hint(hint: Any, value: Any, found: Any):
    result = coerce("key", value, hint)
    assert result == found
    assert type(result) is type(found)


def test_an_unchanged_value_is_returned_as_the_same_object():
    config = {"a": [1, 2], "b": {"c": 0.5}}
    assert coerce("key", config, Mapping[str, Any]) is config
    assert coerce("key", config["a"], Sequence[int]) is config["a"]


@pytest.mark.parametrize(
    ("hint", "value", "message"),
    [
        (int, 1.5, "key=1.5 is number; expected integer"),
        (int, True, "key=True is true or false; expected integer"),
        (int, 2**63, "key=9223372036854775808; expected an integer of at most 64 bits"),
        (float, NAN, "key=nan; expected a finite number"),
        (float, INF, "key=inf; expected a finite number"),
        (float, 10**400, "expected a finite number"),
        (Probability, NAN, "key=nan; expected a finite number between 0 and 1"),
        (Probability, "x", "key='x' is text; expected number between 0 and 1"),
        (Positive, 0.0, "key=0.0; expected a number above 0"),
        (Portion, 0, "key=0; expected a number above 0 and at most 1"),
        (Positive | None, -1, "key=-1; expected a number above 0, or null"),
        (Annotated[float, Range(0, 1, below_high=True)], 1, "key=1; expected at least 0 and below 1"),
        (Sequence[Count], "64", "key='64' is text; expected list"),
        (Sequence[Count], [64, "x"], r"key\[1\]='x' is text; expected integer of at least 1"),
        (Sequence[Count] | None, [64, "x"], r"key\[1\]='x' is text; expected integer of at least 1"),
        (Mapping[str, int], {"a": "b"}, "key.a='b' is text; expected integer"),
        (Literal["a", "b"], "c", "key='c'; expected a or b"),
        (Literal["a", "b"], 1, "key=1; expected a or b"),
        (float | Literal["auto"] | None, "soon", "key='soon'; expected number, auto or null"),
        (float | Literal["auto"] | None, [], r"key=\[\] is list; expected number, auto or null"),
        (NonNegativeSchedule, [[0, 1.0], [10, -1.0]], "key=-1.0; expected at least 0"),
        (NonNegativeSchedule, "x", r"key='x'; expected a number, or \[\[env_step"),
        (Schedule, {"type": ["linear"]}, "key.type=.* is no schedule"),
        (gym.Space, "CartPole-v1", "key='CartPole-v1' is text; expected Space"),
        (str, "x" * 10 + "\n" + 1000 * "y", None),
        (bool, "x" * 10 + "\n" + 1000 * "y", r"key='xxxxxxxxxx\\ny.* … yyyyyyyyy' \(1014 characters\) is text"),
    ],
    ids=str,
)
def test_a_value_that_does_not_fit_is_one_line(hint: Any, value: Any, message: str | None):
    if message is None:
        assert coerce("key", value, hint) == value
        return
    with pytest.raises(ConfigError, match=message) as refusal:
        coerce("key", value, hint)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 400


def test_a_hint_reads_as_words():
    assert spell_type(Probability) == "number between 0 and 1"
    assert spell_type(Count | None) == "integer of at least 1 or null"
    assert spell_type(float | Literal["auto"] | None) == "number, auto or null"


# -- constructors -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("construct", "message"),
    [
        (lambda: PPO(OBS, ACTIONS, gamma=3.0), "policy.gamma=3.0; expected between 0 and 1"),
        (lambda: PPO(OBS, ACTIONS, learning_rate=1), "no key 'policy.learning_rate'. Did you mean 'policy.lr'?"),
        (lambda: PPO(OBS, ACTIONS, pases=1), "no key 'policy.pases'. Did you mean 'policy.passes'? Keys of policy: "),
        (lambda: PPO(OBS, ACTIONS, gae_lambda=7), "policy.gae_lambda=7; expected between 0 and 1"),
        (lambda: PPO(OBS, ACTIONS, passes=0), "policy.passes=0; expected between 1 and 10000"),
        (lambda: PPO(OBS, ACTIONS, clip=-0.2), "policy.clip=-0.2; expected at least 0"),
        (lambda: PPO(OBS, ACTIONS, max_grad_norm=NAN), "policy.max_grad_norm=nan; expected a finite number above 0"),
        (lambda: PPO(OBS, ACTIONS, seed=5_000_000_000), "policy.seed=5000000000; expected between 0 and 4294967295"),
        (lambda: PPO(OBS, ACTIONS, model={"fcnet_hiddens": 64}), "model.fcnet_hiddens=64 is integer; expected list"),
        (lambda: PPO(OBS, ACTIONS, model={"use_lstm": "flase"}), "model.use_lstm='flase' is text; expected true or"),
        (lambda: PPO(OBS, ACTIONS, model={"net_arch": [64]}), "no key 'model.net_arch'. Did you mean 'model.fcnet_hid"),
        (lambda: PPO(OBS, ACTIONS, optimizer_kwargs={"eps": -1}), "policy.optimizer_kwargs.eps=-1: Invalid epsilon"),
        (lambda: PPO(OBS, ACTIONS, optimizer_kwargs={"ep": 1}), "no key 'policy.optimizer_kwargs.ep'. Did you mean"),
        (lambda: PPO(OBS, ACTIONS, optimizer_kwargs={"lr": 1.0}), "no key 'policy.optimizer_kwargs.lr'"),
        (lambda: PPO(OBS, ACTIONS, custom_losses=[{"loss": print, "weight": "x"}]), r"custom_losses\[0\].weight='x'"),
        (lambda: PPO(OBS, ACTIONS, lr=1e30), "policy.lr=1e+30; expected between 0 and 1000"),
        (lambda: ReplayDataModule("CartPole-v1", priority_alpha=2), "data.priority_alpha=2; expected between 0 and 1"),
        (lambda: ReplayDataModule("CartPole-v1", storage="a\0b"), "holds the character NUL"),
        (lambda: DQN(OBS, ACTIONS, huber_delta=0), "policy.huber_delta=0; expected a number above 0, or null"),
        (lambda: DQN(OBS, ACTIONS, v_min=NAN), "policy.v_min=nan; expected a finite number"),
        (lambda: SAC(OBS, BOX, target_entropy="much"), "policy.target_entropy='much'; expected number, auto or null"),
        (lambda: SAC(OBS, BOX, critic_lr_scale=-1), "policy.critic_lr_scale=-1; expected at least 0"),
        (lambda: EpsilonGreedy(ACTIONS, initial_epsilon=2), "exploration.initial_epsilon=2; expected between 0 and 1"),
        (lambda: EpsilonGreedy(ACTIONS, 2), "exploration.initial_epsilon=2; expected between 0 and 1"),
        (lambda: SoftQ(ACTIONS, 0.0), "exploration.temperature=0.0; expected a number above 0"),
        (lambda: ReplayDataModule("CartPole-v1", capacity=0), "data.capacity=0; expected at least 1"),
        (
            lambda: RolloutDataModule("CartPole-v1", {"envs_per_worker": 0}),
            "workers.envs_per_worker=0; expected",
        ),
        (lambda: RolloutDataModule("CartPole-v1", {"n_envs": 3}), "Did you mean 'workers.envs_per_worker'"),
        (
            lambda: RolloutDataModule("CartPole-v1", None, {"episodes": 0}),
            "evaluation.episodes=0; expected between 1 and 10000",
        ),
        (lambda: RolloutDataModule("CartPole-v1", plan="x"), "data.plan='x' is no import path"),
        (
            lambda: RLCheckpoint("x", every_seconds=NAN),
            "checkpoint.every_seconds=nan; expected a finite number",
        ),
        (lambda: RLCheckpoint("x", max_failures=0), "checkpoint.max_failures=0; expected at least 1"),
        (lambda: StopCallback(seconds=NAN), "stop.seconds=nan; expected a finite number above 0"),
        (lambda: EnvCreator("CartPole-v1", max_episode_steps=0), "env.max_episode_steps=0; expected at least 1"),
        (lambda: Limits(restart_backoff_s=NAN), "workers.restart_backoff_s=nan; expected a finite number at least 0"),
    ],
)
def test_a_constructor_refuses_values_outside_of_its_annotations(construct: Any, message: str):
    with pytest.raises(ConfigError) as refusal:
        construct()
    assert message.replace("\\", "") in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_integers_that_torch_does_not_take_become_floats_where_these_belong():
    assert repr(coerce("key", 2**70, float)) == repr(2.0**70)
    assert repr(coerce("key", [3, 2**70], list[float])) == repr([3, 2.0**70])
    assert repr(coerce("key", 2**62, float)) == repr(2**62)  # a config shows what was written
    policies = [PPO(*CARTPOLE.spaces(), value_clip=large, seed=3) for large in (2**70, 2.0**70)]
    for policy in policies:
        policy.learn_on_batch(RolloutWorker(CARTPOLE, policy, fragment_length=8).sample())
    ours, theirs = (policy.get_weights() for policy in policies)
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)


def test_whole_floats_become_integers_where_these_belong():
    policy = PPO(OBS, ACTIONS, passes=2.0, model={"fcnet_hiddens": [8.0]})
    assert (policy.passes, type(policy.passes)) == (2, int)
    assert ReplayDataModule({"id": "CartPole-v1"}, capacity=1e5).capacity == 100_000
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
    for keywords, message in (
        ({"strength": "x"}, "policy.strength='x' is text; expected number"),
        ({"rounds": 0}, "policy.rounds=0; expected at least 1"),
        ({"gamma": 7}, "policy.gamma=7; expected between 0 and 1"),
    ):
        with pytest.raises(ConfigError, match=message):
            Own(OBS, ACTIONS, **keywords)


def zero_loss(policy: Any, model: Any, dist_class: Any, batch: Any) -> Any:
    return model(batch)[0].sum() * 0


Functional = build_policy("Functional", loss_fn=zero_loss, get_default_config=lambda: {"gamma": 0.5, "own": 3})


def test_a_policy_made_of_functions_is_checked():
    assert Functional(OBS, ACTIONS).gamma == 0.5
    with pytest.raises(ConfigError, match=r"policy\.gamma=5; expected between 0 and 1"):
        Functional(OBS, ACTIONS, gamma=5)


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
    with pytest.raises(ConfigError, match=r"policy\.passes=0"):
        Mine(OBS, ACTIONS, passes=0)


# -- one place --------------------------------------------------------------------------------------------------------
def shipped_constructors() -> list[Any]:
    """Every class whose keywords are config keys."""
    import yaml

    files = [*(shipped_conf() / "policy").glob("*.yaml"), *(shipped_conf() / "data").glob("*.yaml")]
    targets = {yaml.safe_load(file.read_text()).get("_target_") for file in files} - {None}
    classes = [import_object(path) for path in (*sorted(targets), *STRATEGIES.values())]
    return [*classes, EnvCreator, Limits, RLCheckpoint, StopCallback]


ANY_NUMBER = ("v_min", "v_max", "target_return")


@pytest.mark.parametrize("target", shipped_constructors(), ids=lambda target: target.__name__)
def test_every_numeric_keyword_of_the_package_has_a_range(target: Any):
    for name, keyword in keywords_of(target).items():
        if isinstance(keyword.default, bool) or not isinstance(keyword.default, int | float):
            continue
        hints = (keyword.annotation, *getattr(keyword.annotation, "__args__", ()))
        ranged = any(isinstance(mark, Range) for hint in hints for mark in getattr(hint, "__metadata__", ()))
        assert ranged or name in ANY_NUMBER, f"{target.__name__}.{name}: {keyword.annotation}"


@pytest.mark.parametrize("target", shipped_constructors(), ids=lambda target: target.__name__)
def test_every_default_of_the_package_fits_its_own_annotation(target: Any):
    for name, keyword in keywords_of(target).items():
        if keyword.default is not keyword.empty and not repr(keyword.default).startswith("<factory"):
            coerce(name, keyword.default, keyword.annotation)


def test_errors_name_the_keys_of_a_section_by_the_section():
    section = Section("section", (Limits,))
    with pytest.raises(ConfigError, match=r"section\.max_restarts=-1"):
        coerce("elsewhere", {"max_restarts": -1}, Annotated[Mapping[str, Any], section])


def test_a_config_names_the_key_and_takes_whole_floats(tmp_path: Path):
    from lightning_rl.config import check_config

    config = compose_config([f"run_dir={tmp_path}", "total_env_steps=1e5", "data=replay", "policy=dqn", "seed=2.0"])
    check_config(config)
    assert (repr(config["total_env_steps"]), repr(config["seed"])) == ("100000", "2")


def test_lists_for_a_function_without_a_signature_stay_lists():
    assert with_tuples(max, {"key": [1]}) == {"key": [1]}
