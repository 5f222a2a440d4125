"""Schedules against points worked by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_rl.config import check_config, compose_config
from lightning_rl.config.groups import group_options, option_text
from lightning_rl.policies import DQN, PPO
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.runs import run
from lightning_rl.schedules import SCHEDULES, check_schedule, schedule_points, schedule_value, to_env_steps
from tests.envs.classic_control import CARTPOLE
from tests.refusals import refused_key
from tests.run_comparison import checked_config


def test_a_number_is_the_same_at_every_step() -> None:
    assert schedule_value(0.5, 0) == schedule_value(0.5, 10**12) == 0.5
    assert isinstance(schedule_value(1, 0), float)


def test_points_are_joined_by_lines_and_the_ends_go_on() -> None:
    """1 until step 100, ½ at 200, 0 from 500: halfway between 100 and 200 is ¾, between 200 and 500 is ¼."""
    expected = {0: 1.0, 100: 1.0, 150: 0.75, 200: 0.5, 350: 0.25, 500: 0.0, 10**9: 0.0}
    found = {step: schedule_value([[100, 1.0], [200, 0.5], [500, 0.0]], step) for step in expected}
    assert found == pytest.approx(expected)


def test_one_point_is_a_constant() -> None:
    assert schedule_value([[100, 0.3]], 0) == schedule_value([[100, 0.3]], 1000) == 0.3


@st.composite
def schedules(draw: st.DrawFn) -> list[list[float]]:
    steps = sorted(draw(st.sets(st.integers(0, 10**9), min_size=1, max_size=5)))
    return [[step, draw(st.floats(-1e3, 1e3))] for step in steps]


@settings(derandomize=True, max_examples=50, deadline=None)
@given(schedules(), st.integers(0, 2 * 10**9))
def test_a_schedule_stays_between_its_values_and_meets_its_points(schedule: list[list[float]], env_steps: int) -> None:
    check_schedule("lr", schedule)
    values = [value for _, value in schedule]
    assert min(values) - 1e-9 <= schedule_value(schedule, env_steps) <= max(values) + 1e-9
    assert [schedule_value(schedule, int(step)) for step, _ in schedule] == values


def test_an_invalid_schedule_is_refused_with_its_key() -> None:
    wrong: list[Any] = ["3e-4", True, None, [], [1, 2], [[0, 1, 2]], [[0, "a"]], ["ab"], [[0, 1], [0, 2]], math.nan]
    wrong.append([[5, 1], [2, 2]])
    assert [each for each in wrong if refused_key(check_schedule, "policy.lr", each) != "policy.lr"] == []


def test_numbers_and_rising_points_are_schedules() -> None:
    for schedule in (0, 1e-3, [[0, 1]], ((0, 1.0), (10, 0))):
        check_schedule("policy.lr", schedule)


# -- curves -----------------------------------------------------------------------------------------------------------
def curve(kind: str, **keywords: Any) -> dict[str, Any]:
    return {"type": kind, "initial": 1.0, "final": 0.01, "steps": 100, **keywords}


@pytest.mark.parametrize(
    ("kind", "quarter", "half"),
    [
        ("linear", 0.7525, 0.505),
        ("exponential", 0.01**0.25, 0.1),  # equal ratios in equal steps
        ("cosine", 0.01 + 0.99 * (1 + math.cos(math.pi / 4)) / 2, 0.505),
    ],
)
def test_curves_go_from_initial_to_final(kind: str, quarter: float, half: float) -> None:
    schedule = curve(kind)
    check_schedule("lr", schedule)
    values = [schedule_value(schedule, step) for step in (0, 25, 50, 100, 10**9)]
    assert values == pytest.approx([1.0, quarter, half, 0.01, 0.01])


@pytest.mark.parametrize("kind", ["linear", "exponential", "cosine"])
def test_curves_may_start_later(kind: str) -> None:
    late = curve(kind, start=1000)
    assert schedule_value(late, 0) == schedule_value(late, 1000) == 1.0
    assert schedule_value(late, 1050) == schedule_value(curve(kind), 50)


def test_constant_and_piecewise_are_the_short_forms_written_out() -> None:
    assert schedule_value({"type": "constant", "value": 0.5}, 10**6) == 0.5
    points = [[100, 1.0], [200, 0.5], [500, 0.0]]
    written = {"type": "piecewise", "points": points}
    check_schedule("lr", written)
    assert all(schedule_value(written, step) == schedule_value(points, step) for step in range(0, 600, 25))


@settings(derandomize=True, max_examples=50, deadline=None)
@given(
    st.sampled_from(["linear", "exponential", "cosine"]), st.floats(0.01, 10), st.floats(0.01, 10), st.integers(0, 300)
)
def test_curves_never_leave_their_ends_and_never_turn(kind: str, initial: float, final: float, step: int) -> None:
    schedule = curve(kind, initial=initial, final=final)
    now, then = schedule_value(schedule, step), schedule_value(schedule, step + 1)
    low, high = sorted(schedule_points(schedule))
    assert low - 1e-9 <= now <= high + 1e-9
    assert (then - now) * (final - initial) >= -1e-12


def test_the_error_for_a_wrong_mapping_names_the_key_at_fault() -> None:
    cases = (
        ({"type": "cosin"}, "lr.type"),
        ({"initial": 1}, "lr.type"),
        (curve("cosine", step=1), "lr.step"),
        ({"type": "linear", "initial": 1, "final": 0}, "lr.steps"),
        (curve("linear", steps=0), "lr.steps"),
        (curve("linear", initial="a"), "lr.initial"),
        (curve("exponential", final=0.0), "lr"),
        (curve("exponential", initial=-1.0), "lr"),
        ({"type": "piecewise", "points": [[1, 1], [0, 1]]}, "lr.points"),
        ({"type": "constant", "value": 1, "start": 5}, "lr.start"),
    )
    assert [refused_key(check_schedule, "lr", schedule) for schedule, _ in cases] == [key for _, key in cases]


def test_a_range_holds_for_every_form() -> None:
    for schedule in (1.5, [[0, 0.5], [10, 1.5]], curve("linear", final=1.5), curve("cosine", initial=2)):
        assert refused_key(check_schedule, "epsilon", schedule) is None
        assert refused_key(check_schedule, "epsilon", schedule, low=0.0, high=1.0) == "epsilon", schedule


def test_every_type_is_tested() -> None:
    assert set(SCHEDULES) == {"constant", "linear", "piecewise", "exponential", "cosine"}


# -- in a config ------------------------------------------------------------------------------------------------------
COSINE = "{type:cosine,initial:3e-4,final:0,steps:1e6}"


@pytest.mark.parametrize("experiment", ["none", "ppo_cartpole"])  # a number and a list stand there already
def test_a_mapping_is_taken_on_the_command_line(experiment: str) -> None:
    config = checked_config(f"experiment={experiment}", f"policy.lr={COSINE}", f"policy.clip={COSINE}")
    assert config["policy"]["lr"] == {"type": "cosine", "initial": 3e-4, "final": 0, "steps": 1e6}
    assert config["policy"]["clip"] == config["policy"]["lr"]


def test_mistakes_are_found_before_training() -> None:
    for override, key in (
        ("policy.lr={type:cosin}", "policy.lr.type"),
        ("policy.entropy_coef={type:linear,initial:1}", "policy.entropy_coef.final"),
        ("policy.clip={type:linear,initial:0.2,final:-1,steps:5}", "policy.clip"),
        ("policy.lr=[1,2]", "policy.lr"),
        ("policy.lr=fast", "policy.lr"),
    ):
        assert refused_key(check_config, compose_config([override])) == key, override
    assert refused_key(compose_config, [f"policy.lrr={COSINE}"]) == "policy.lrr"


def test_a_policy_follows_a_curve_over_env_steps() -> None:
    """lr, clip and entropy_coef at 128 of 256 steps are halfway down the cosine."""
    half = {"type": "cosine", "initial": 1e-2, "final": 0.0, "steps": 256}
    env = CARTPOLE
    policy = PPO(*env.spaces(), lr=half, entropy_coef=half, clip={**half, "initial": 0.4}, passes=1, minibatches=1)
    policy.env_steps = 128
    assert policy.learner.optimizer.set_lr(policy.env_steps) == pytest.approx(5e-3)
    assert policy.learner.optimizer.torch_optimizer.param_groups[0]["lr"] == pytest.approx(5e-3)
    assert schedule_value(policy.clip, policy.env_steps) == pytest.approx(0.2)
    worker = RolloutWorker(env, policy, num_envs=4, fragment_length=32)
    assert policy.learn_on_batch(worker.sample())["lr"] < 1e-3


# -- shares of a run --------------------------------------------------------------------------------------------------
def test_shares_of_a_run_of_2000_env_steps() -> None:
    cases: tuple[tuple[Any, Any], ...] = (
        ("10%", 200),
        ("0%", 0),
        ("0.001%", 1),  # 0.02 env steps
        (10, 10),
        (1e-3, 1e-3),
        (None, None),
        ([[0, 1.0], ["12.5%", 0.5], ["100%", 0.0]], [[0, 1.0], [250.0, 0.5], [2000.0, 0.0]]),
        ({"type": "piecewise", "points": [["50%", 1.0]]}, {"type": "piecewise", "points": [[1000.0, 1.0]]}),
        (curve("linear", start="10%", steps="20%"), curve("linear", start=200, steps=400)),
        ({"type": "cosine", "initial": 1, "final": 0}, {"type": "cosine", "initial": 1, "final": 0, "steps": 2000}),
        (
            {"type": "cosine", "initial": 1, "final": 0, "start": "75%"},
            {"type": "cosine", "initial": 1, "final": 0, "start": 1500, "steps": 500},
        ),
        ({"type": "constant", "value": 1}, {"type": "constant", "value": 1}),
    )
    assert [to_env_steps(given, 2000) for given, _ in cases] == [expected for _, expected in cases]


def run_config(*overrides: str) -> dict[str, Any]:
    return checked_config("env=cartpole", "experiment=none", "logger=none", "model.fcnet_hiddens=[8]", *overrides)


def test_constructors_get_env_steps_and_the_config_keeps_the_shares() -> None:
    schedules = ("policy.lr=[[0%,1e-3],[100%,0]]", "policy.entropy_coef={type:linear,initial:0.1,final:0,steps:50%}")
    config = run_config("policy=ppo", "total_env_steps=3000", *schedules)
    policy: Any = run.build(config)[0]
    assert policy.learner.optimizer.lr == [[0, 1e-3], [3000, 0]]
    assert schedule_value(policy.entropy_coef, 750) == pytest.approx(0.05)
    assert config["policy"]["lr"] == [["0%", 1e-3], ["100%", 0]]


def test_warm_up_and_exploration_follow_the_run() -> None:
    """ε falls over the first tenth, and replay starts after 1 %, of a run of 40,000 and of one of 80,000."""
    for total in (40_000, 80_000):
        policy, datamodule, _ = run.build(
            run_config("policy=dqn", f"total_env_steps={total}", "data.learning_starts=1%")
        )
        exploration: Any = policy.exploration
        assert exploration.epsilon(total // 20) == pytest.approx((1.0 + 0.05) / 2)
        assert exploration.epsilon(total // 10) == pytest.approx(0.05)
        assert datamodule.source.ratio.learning_starts == total // 100  # pyright: ignore[reportAttributeAccessIssue]


def test_a_strategy_under_another_follows_the_run() -> None:
    sub = "exploration.sub_exploration={type:epsilon_greedy,epsilon_timesteps:50%,final_epsilon:0.0}"
    policy: Any = run.build(
        run_config("policy=dqn", "total_env_steps=8000", "exploration=parameter_noise", "model.layer_norm=true", sub)
    )[0]
    assert policy.exploration.sub_exploration.epsilon(2000) == pytest.approx(0.5)


def test_outside_of_a_run_shares_are_refused_and_default_shares_are_of_100_000() -> None:
    spaces = CARTPOLE.spaces()
    assert refused_key(PPO, *spaces, lr=[["0%", 1e-3], ["100%", 0.0]]) == "policy.lr"
    policy: Any = DQN(*spaces, exploration={"type": "epsilon_greedy"})
    assert policy.exploration.epsilon(5000) == pytest.approx((1.0 + 0.05) / 2)


def test_values_other_than_env_steps_are_no_shares() -> None:
    for key, value in (
        ("policy.lr", "10%"),
        ("policy.lr", "[[0,10%]]"),
        ("policy.lr", "[[50%,1.0],[10%,0.0]]"),
        ("policy.gamma", "10%"),
        ("policy.lr", "[[x%,1]]"),
    ):
        assert refused_key(run_config, "policy=ppo", f"{key}={value}") == key, value


def test_tuned_schedules_end_with_the_run() -> None:
    """In percent, so that a run of more env steps goes on learning."""
    for experiment in group_options("experiment"):
        for key, value in (yaml.safe_load(option_text("experiment", experiment)).get("policy") or {}).items():
            if isinstance(value, list) and isinstance(value[-1], list):  # others are no schedules, but widths of layers
                assert value[-1][0] == "100%", (experiment, key)
