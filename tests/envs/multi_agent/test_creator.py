"""EnvCreator for environments with several agents: ids, layouts, copies, limits."""

from __future__ import annotations

import importlib.util
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from lightning_rl.config import check_config, compose_config
from lightning_rl.config.directories import shipped_conf
from lightning_rl.envs import EnvCreator, register_env
from lightning_rl.envs.multi_agent import AECAdapter, PackedEnv, PackedVectorEnv, ParallelAdapter
from lightning_rl.envs.multi_agent.toy_games import RockPaperScissors, TwoStepGame
from lightning_rl.errors import ConfigError, EnvError
from lightning_rl.schema import trust
from lightning_rl.schema.trust import FileTrust
from tests.refusals import not_refused

GAME = "lightning_rl.envs.multi_agent.toy_games:TwoStepGame"
NEEDED = 'needs pip install -e ".[multiagent]"'


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("mpe2.simple_spread_v3", "mpe2"),
        ("pettingzoo.classic.connect_four_v3", "pettingzoo"),
        ("lbforaging:Foraging-8x8-2p-2f-coop-v3", "lbforaging"),
    ],
)
def test_an_environment_of_a_missing_package_says_what_to_install(
    name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In Python, and by the check of a config, before anything starts."""
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda module, *_: None if module == package else find(module))
    expected = re.escape(f'environment {name!r} needs {package}: pip install -e ".[multiagent]"')
    calls = (lambda: EnvCreator(name).make_single(), lambda: check_config(compose_config([f"env.id={name}"])))
    assert not_refused(lambda call: call(), [(call, f"^{expected}$") for call in calls], EnvError) == []


def test_a_class_a_function_a_path_and_a_registered_name_make_the_same_environment() -> None:
    register_env("two steps", lambda config: TwoStepGame())
    for id in (TwoStepGame, lambda: TwoStepGame(), GAME, "two steps"):
        layout = EnvCreator(id).layout()
        assert layout is not None and layout.agents == ("agent_0", "agent_1")


def test_spaces_are_dicts_in_the_order_of_the_agents() -> None:
    pytest.importorskip("mpe2", reason=NEEDED)
    for space in EnvCreator("mpe2.simple_speaker_listener_v4").spaces():
        assert isinstance(space, spaces.Dict) and [*space] == ["speaker_0", "listener_0"]


@pytest.mark.parametrize(
    ("id", "package", "adapter"),
    [
        ("mpe2.simple_spread_v3", "mpe2", ParallelAdapter),
        ("mpe2.simple_spread_v3:parallel_env", "mpe2", ParallelAdapter),
        ("pettingzoo.classic.connect_four_v3", "pettingzoo", AECAdapter),
        ("mpe2.simple_spread_v3:env", "mpe2", AECAdapter),
    ],
)
@pytest.mark.filterwarnings("error::DeprecationWarning")
def test_a_pettingzoo_module_is_named_by_its_path(id: str, package: str, adapter: type) -> None:
    pytest.importorskip(package, reason=NEEDED)
    env = EnvCreator(id).make_single()
    assert isinstance(env, PackedEnv) and isinstance(env.env, adapter)


def test_keywords_and_the_limit_reach_a_pettingzoo_environment() -> None:
    pytest.importorskip("mpe2", reason=NEEDED)
    creator = EnvCreator("mpe2.simple_spread_v3", {"N": 2, "continuous_actions": True}, max_episode_steps=3)
    layout = creator.layout()
    assert layout is not None and len(layout.agents) == 2
    assert isinstance(layout.action_spaces["agent_0"], spaces.Box)
    env = creator.make_single()
    env.reset(seed=0)
    assert [env.step(env.action_space.sample())[3] for _ in range(3)] == [False, False, True]


def test_a_path_that_leads_nowhere_names_the_nearest_and_something_else_is_named() -> None:
    pytest.importorskip("mpe2", reason=NEEDED)
    cases = [
        ("mpe2.simple_sprad_v3", "'simple_spread_v3'"),
        ("no_such_package.envs.v3", "'no_such_package'"),
        ("lightning_rl.envs.registry", "neither parallel_env nor env"),
        (lambda: "no environment", r"made a str.*gymnasium\.Env.*MultiAgentEnv.*PettingZoo"),
    ]
    assert not_refused(lambda id: EnvCreator(id).spaces(), cases, (ConfigError, EnvError)) == []


@pytest.mark.parametrize(
    ("package", "id"), [("lbforaging", "Foraging-8x8-2p-2f-coop-v3"), ("rware", "rware-tiny-2ag-v2")]
)
def test_an_id_without_its_package_gets_the_package_named(package: str, id: str) -> None:
    """In a fresh process: another test may have registered the ids."""
    pytest.importorskip(package, reason=NEEDED)
    code = f"""from lightning_rl.envs import EnvCreator
try: EnvCreator({id!r}).spaces()
except Exception as error: print(type(error).__name__, error)
print(EnvCreator({package + ":" + id!r}).layout().agents)"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert f"EnvError environment {id!r}" in printed and f"env.id={package}:{id}" in printed
    assert "('agent_0', 'agent_1')" in printed


def test_a_file_may_name_our_games_and_wrappers_and_a_module_only_under_a_trusted_prefix() -> None:
    wrapper = "lightning_rl.envs.multi_agent.wrappers:AgentIds"
    FileTrust("config.yaml").check({"env": {"id": GAME, "wrappers": [wrapper, {"wrapper": wrapper, "pad": True}]}})
    strange = {"env": {"id": "zoo.some_game_v3"}}
    with pytest.raises(ConfigError, match="--trust zoo"):
        FileTrust("config.yaml").check(strange)
    FileTrust("config.yaml", ["zoo"]).check(strange)


def test_a_file_may_name_the_environment_of_each_preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But not a module of that name that is only in the working directory, where somebody else may have put it."""
    monkeypatch.setattr(trust, "named_here", set())  # other tests may have named them
    ids = [re.findall(r"^id: (\S+)", file.read_text(), re.MULTILINE) for file in (shipped_conf() / "env").iterdir()]
    named = [{"env": {"id": id}} for each in ids for id in each if id != "???"]
    assert len(named) > 20
    for content in named:
        names = FileTrust("config.yaml")
        names.check(content)
        with names.restrict_imports():
            EnvCreator(**content["env"])._creator()
    for near in ("mpe2.simple_spread_v3.env", "mpe2.simple_spread_v3:os.system", "lbforaging:os", "mpe2.simple_v3"):
        with pytest.raises(ConfigError, match="not trusted"):
            FileTrust("config.yaml").check({"env": {"id": near}})
    (tmp_path / "mpe2").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*(place for place in sys.path if "-packages" not in place), str(tmp_path)])
    with pytest.raises(ConfigError, match="--trust mpe2"):
        FileTrust("config.yaml").check({"env": {"id": "mpe2.simple_spread_v3"}})


def test_the_layout_is_found_once_and_a_single_agent_environment_has_none() -> None:
    made: list[TwoStepGame] = []

    def make() -> TwoStepGame:
        made.append(TwoStepGame())
        return made[-1]

    creator = EnvCreator(make)
    creator.spaces()
    assert creator.layout() is creator.layout() and len(made) == 1
    single = EnvCreator("CartPole-v1")
    assert single.layout() is None and isinstance(single.make_single(), gym.Env)


def test_agents_are_copies_with_episodes_of_their_own() -> None:
    creator = EnvCreator("CartPole-v1", agents=3, max_episode_steps=4)
    layout = creator.layout()
    assert layout is not None and layout.agents == ("agent_0", "agent_1", "agent_2") and len(layout.kinds) == 1
    env = creator.make(4)
    assert isinstance(env, PackedVectorEnv)
    env.reset(seed=0)
    for step in range(4):
        obs, _, _, truncated, _ = env.step({"0": env.action_space.sample()["0"]})
        assert truncated.all() == (step == 3) and obs["truncated"].all() == (step == 3)


def test_what_several_agents_cannot_have_is_refused() -> None:
    cases = [
        (lambda: EnvCreator(TwoStepGame, agents=2).spaces(), "agents=2"),
        (lambda: EnvCreator("CartPole-v1", agents=0), r"env\.agents=0"),
        (lambda: EnvCreator(GAME).make(2, mode=AutoresetMode.SAME_STEP), "NEXT_STEP"),
        (lambda: EnvCreator("CartPole-v1", agents=2).make(2, "native"), "vector form"),
    ]
    assert not_refused(lambda call: call(), cases, (ConfigError, EnvError)) == []


def test_a_pickled_creator_makes_the_same_environment() -> None:
    creator = EnvCreator(GAME, group_agents={"team": ["agent_*"]})
    creator.layout()
    twin = pickle.loads(pickle.dumps(creator))
    assert twin == creator and twin.layout() == creator.layout()


def test_keywords_of_a_game_or_of_copies_reach_them() -> None:
    env: Any = EnvCreator(RockPaperScissors, {"repetitions": 2}).make_single()
    assert isinstance(env, PackedEnv) and env.env.unwrapped.repetitions == 2
    assert EnvCreator("CartPole-v1", {"render_mode": "rgb_array"}, agents=2).make_single().render_mode == "rgb_array"
