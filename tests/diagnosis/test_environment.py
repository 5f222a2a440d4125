"""`check-env` names what is wrong with an environment; golden findings for broken ones."""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from lightning_rl.callbacks.rendering.frames import check_picture
from lightning_rl.diagnosis import environment
from lightning_rl.diagnosis.environment import examine_costs, examine_env, examine_processes, examine_seeding
from lightning_rl.diagnosis.findings import Finding
from lightning_rl.diagnosis.random_play import Played
from lightning_rl.envs import EnvCreator
from lightning_rl.errors import EnvError, drawing_advice
from tests.envs import broken_envs
from tests.envs.masked_envs import Masked
from tests.envs.multi_agent import broken_envs as broken_teams


class Walk(gym.Env[np.ndarray, Any]):
    """A fine environment, unless a keyword breaks it; module-level, so that other processes can create it."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    action_space: gym.Space[Any] = spaces.Discrete(2)
    observation_space: gym.Space[Any] = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    memory: list[np.ndarray] = []  # noqa: RUF012

    def __init__(self, fault: str = "", render_mode: str | None = None) -> None:
        self.fault, self.render_mode, self.born = fault, render_mode, np.random.default_rng().normal()
        if fault == "unbounded actions":
            self.action_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
        if fault == "float image":
            self.observation_space = spaces.Box(0, 1, (40, 40, 3), np.float32)
        if fault == "text":
            self.observation_space = spaces.Text(5)
        if fault == "goals":
            parts = dict.fromkeys(("observation", "achieved_goal", "desired_goal"), spaces.Box(-9, 9, (2,), np.float32))
            self.observation_space = spaces.Dict(parts)

    def look(self) -> Any:
        if self.fault == "text":
            return "abc"
        if self.fault == "float image":
            return self.np_random.random((40, 40, 3)).astype(np.float32)
        noise = self.np_random.normal(size=2).astype(np.float32)
        if self.fault == "goals":
            return dict.fromkeys(self.observation_space.spaces, noise.clip(-9, 9))  # type: ignore[attr-defined]
        if self.fault == "late NaN" and self.time > 30:
            return noise * np.float32(np.nan)
        added = self.born if self.fault == "other copy" else 0.0
        return noise * np.float32(1e4 if self.fault == "large" else 1.0) + np.float32(added)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        fixed = {"one seed": 3, "starts again": 4 if seed is None else seed}
        fixed["seed ignored"] = None if seed is None else 3
        super().reset(seed=fixed.get(self.fault, seed))
        self.time = 0
        return self.look(), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        if self.fault == "slow":
            time.sleep(0.006)
        if self.fault == "leak":
            self.memory.append(np.ones(20_000))
        if self.fault == "late crash" and self.time == 25:
            raise ZeroDivisionError("a wheel came off")
        reward = float(self.np_random.normal()) * (1e4 if self.fault == "rewards" else 1.0)
        length = 30 if self.fault in ("limit", "late NaN", "late crash") else int(self.np_random.integers(20, 40))
        over = self.fault != "endless" and self.time >= length + 5
        return self.look(), 0.0 if self.fault == "sparse" else reward, over, False, {}

    def render(self) -> Any:
        channels = 4 if self.fault == "transparent" else 3
        return np.zeros((8, 8)) if self.fault == "picture" else np.zeros((8, 9, channels), np.uint8)


def found(env: Any, steps: int, **keywords: Any) -> dict[str, Finding]:
    """The findings by their subjects."""
    return {finding.subject: finding for finding in examine_env(EnvCreator(env, keywords), steps)}


def examine(fault: str) -> dict[str, Finding]:
    return found(Walk, 400, fault=fault)


@pytest.fixture(autouse=True)
def without_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting one takes seconds."""
    monkeypatch.setattr(environment, "examine_processes", lambda *_: Finding("processes", "ok", ""))


def test_a_fine_environment_has_only_good_findings():
    findings = examine("")
    assert {finding.level for finding in findings.values()} == {"ok"}
    assert findings["seeding"].text.startswith("other seeds give other episodes")
    assert findings["rendering"].text.endswith("a picture has 8×9")
    assert findings["longer walk"].text == "400 random steps without a violation"


def test_a_transparent_picture_is_as_good_as_it_is_to_a_video():
    with_alpha = EnvCreator(Walk, {"fault": "transparent"})
    finding = environment.examine_rendering(with_alpha)
    assert finding.level == "ok" and finding.text.endswith("a picture has 8×9")
    assert check_picture(with_alpha, "a video")


def needs_another_package() -> Any:
    import package_of_another_library  # noqa: F401  # pyright: ignore[reportMissingImports]


def test_a_missing_package_is_to_be_installed():
    (finding,) = examine_env(EnvCreator(needs_another_package))
    assert finding.level == "bad" and "package_of_another" in finding.fix


GOLDEN = [
    ("text", "observation space", "bad", "Text", "wrapper"),
    ("unbounded actions", "action space", "warn", "has no bounds", "give low and high"),
    ("float image", "observation space", "warn", "an image of float32", "uint8"),
    ("late NaN", "longer walk", "bad", "nan at index [0]", "change the environment"),
    ("late crash", "longer walk", "bad", "raised ZeroDivisionError in step 24 after", "change the environment"),
    ("limit", "episodes", "warn", "all of one length", "truncated=True"),
    ("endless", "episodes", "warn", "none ended within 400 random steps; no time limit", "env.max_episode_steps"),
    ("rewards", "rewards", "warn", "large", "policy.reward_filter=return_std"),
    ("sparse", "rewards", "warn", "all 0 in 400 random steps", "exploration=rnd"),
    ("large", "observations", "warn", "large for a network's input", "policy.observation_filter=mean_std"),
    ("slow", "speed", "warn", "h for 10⁶ steps", "workers.num_workers"),
    ("leak", "memory", "warn", "MiB in 1000 steps", "lists that grow"),
    ("other copy", "determinism", "warn", "differ from reset on", "self.np_random"),
    ("starts again", "seeding", "warn", "a reset without a seed begins the same episode again", "np_random"),
    ("seed ignored", "seeding", "warn", "all seeds give the same episode", "super().reset(seed=seed)"),
    ("picture", "rendering", "warn", "render() gave an array float64 [8, 8]", "uint8"),
    ("goals", "goals", "warn", "without compute_reward", "add compute_reward"),
]


@pytest.mark.parametrize(("fault", "subject", "level", "text", "fix"), GOLDEN, ids=[case[0] for case in GOLDEN])
def test_each_fault_has_its_finding_and_its_fix(fault: str, subject: str, level: str, text: str, fix: str):
    findings = examine(fault)
    finding = findings[subject]
    assert finding.level == level and text in finding.text and fix in finding.fix
    others = {name for name, other in findings.items() if other.level != "ok"} - {subject}
    assert not others - {"policies that fit"}  # nothing else is blamed


def test_an_environment_that_is_seeded_by_a_fixed_number_has_nothing_random():
    assert "nothing is random" in examine("one seed")["seeding"].text


BROKEN = [
    cls
    for module in (broken_envs, broken_teams)
    for cls in vars(module).values()
    if isinstance(cls, type) and cls.__module__ == module.__name__ and cls.__name__ not in ("Fine", "Unseeded")
]


@pytest.mark.parametrize("broken", BROKEN, ids=lambda cls: f"{cls.__module__.split('.')[-2]}-{cls.__name__}")
def test_what_the_check_before_a_run_refuses_is_bad(broken: type):
    finding = examine_env(EnvCreator(broken))[-1]
    assert finding.level == "bad" and finding.subject in ("API", "creation") and finding.fix
    assert broken.__name__ in finding.text


def test_a_fine_team_is_examined_agent_by_agent():
    findings = found(broken_teams.Fine, 50)
    assert findings["observation space of a, b"].level == "ok" and findings["creation"].text.startswith("Fine in")
    fitting = findings["policies that fit"].text.split(", ")
    assert "vdn" in fitting and not {"es", "ars", "apex"} & {*fitting}
    assert "bad" not in {finding.level for finding in findings.values()}


class Crowd(broken_teams.Fine):
    """Sixty agents, more than a line can name."""

    def __init__(self) -> None:
        self.possible_agents = [f"bee_{number}" for number in range(60)]
        self.observation_spaces = dict.fromkeys(self.possible_agents, spaces.Box(0, 1, (2,), np.float32))
        self.action_spaces = {agent: spaces.Discrete(2) for agent in self.possible_agents}


def test_many_agents_are_named_by_the_first_and_the_last():
    findings = found(Crowd, 20)
    assert findings["observation space of bee_0 … bee_59 (60 agents)"].level == "ok"
    assert max(map(len, findings)) < 80


def test_what_a_first_reset_shows_is_no_fault_of_the_creation():
    finding = examine_env(EnvCreator(broken_teams.Outside))[-1]
    assert finding.subject == "API" and "env.kwargs" not in finding.fix


@pytest.mark.process
def test_another_process_creates_and_steps_a_fine_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(environment, "examine_processes", examine_processes)
    assert examine("")["processes"].text.startswith("another process creates and steps it")


@pytest.mark.process
def test_another_process_takes_no_forbidden_action():
    assert examine_processes(EnvCreator(Masked, {"actions": "discrete"}), masked=True).level == "ok"


def test_an_unknown_environment_is_one_bad_finding():
    (finding,) = examine_env(EnvCreator("CartPol-v1"))
    assert (finding.subject, finding.level) == ("creation", "bad") and "'CartPole-v1'" in finding.text


def test_keywords_that_cannot_be_pickled_are_found():
    finding = examine_processes(EnvCreator(Walk, {"fault": threading.Lock()}))
    assert finding.level == "warn" and "cannot pickle" in finding.text and "import path" in finding.fix


def test_the_check_is_done_whatever_the_config_says():
    assert examine_env(EnvCreator(broken_envs.NaN, check=False))[-1].level == "bad"


def test_policies_are_sorted_by_what_they_take():
    findings = found("Pendulum-v1", 250)
    fitting = findings["policies that fit"].text.split(", ")
    assert {"ppo", "sac", "td3", "tqc"} <= set(fitting) and not {"dqn", "qmix"} & set(fitting)
    refused = next(finding for subject, finding in findings.items() if "dqn" in subject)
    assert "compares all actions of a Discrete space" in refused.text and "use sac" in refused.text
    assert "200 … 200 steps; time limit 200 steps" in findings["episodes"].text


def test_the_memory_of_a_walk_is_that_of_its_steps():
    """20,000 float64 a step are 160 kB, 153 MiB in 1000 steps."""
    ctypes.CDLL(None).malloc_trim(0)  # else it may fit into what earlier tests have freed
    grown = float(examine("leak")["memory"].text.split()[0])
    assert 100 < grown < 250
    Walk.memory.clear()


class Parts(broken_envs.Fine):
    """One agent that sees two parts and acts by two parts."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = gym.spaces.Tuple([gym.spaces.Discrete(2), gym.spaces.Discrete(2)])
        self.action_space = gym.spaces.Tuple([gym.spaces.Discrete(2), gym.spaces.Box(-1, 1, (1,))])  # type: ignore[assignment]

    def observe(self) -> Any:
        return (0, 1)


def test_the_parts_of_one_agent_are_not_taken_for_agents():
    findings = found(Parts, 50)
    assert "ppo" in findings["policies that fit"].text and "maddpg" not in findings["policies that fit"].text
    assert "maddpg, matd3" in "".join(findings)
    with pytest.raises(EnvError, match="n_agents"):
        EnvCreator(Parts, group_agents="all").spaces()


class SeedsItsActionSpace(broken_envs.Fine):
    """As environments of stock prices: each reset seeds the action space, and the series is always the same."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.action_space.seed(seed or 0)
        self.place = 0.0
        return self.observe(), {}

    def step(self, action: int) -> Any:
        self.place += 0.002 * (2 * action - 1)
        return self.observe(), 1.0, False, False, {}

    def observe(self) -> Any:
        return np.full(2, self.place, np.float32)


def test_random_play_does_not_depend_on_an_environment_that_seeds_its_action_space():
    creator = EnvCreator(SeedsItsActionSpace)
    assert examine_seeding(creator, creator.make_single()).level == "ok"


def test_an_environment_without_an_end_is_not_told_to_cut_its_episodes_at_a_given_length():
    finding = found(SeedsItsActionSpace, 30)["episodes"]
    assert finding.level == "warn" and "--steps 300" in finding.fix and "max_episode_steps" in finding.fix


def test_a_slow_environment_gets_as_many_workers_as_there_are_cores(monkeypatch: pytest.MonkeyPatch):
    for cores, advice in ((1.0, "more cores"), (2.0, "num_workers=2"), (7.5, "num_workers=7")):
        monkeypatch.setattr(environment, "usable_cores", lambda cores=cores: cores)
        (speed, _) = examine_costs(Played(step_seconds=[0.1], reset_seconds=[0.1]))
        assert advice in speed.fix


def test_an_error_of_mujoco_s_renderer_is_answered_with_its_variable(monkeypatch: pytest.MonkeyPatch):
    assert drawing_advice(RuntimeError("invalid value")) == "" or "mujoco" in sys.modules
    monkeypatch.setitem(sys.modules, "mujoco", type(sys)("mujoco"))
    assert "MUJOCO_GL=egl" in drawing_advice(RuntimeError("invalid value"))
    assert "video" in drawing_advice(ImportError("pygame is not installed"))
