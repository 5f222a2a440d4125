"""`PolicyServerInput` and `PolicyClient`: environments in other places, in whose episodes the policy acts."""

from __future__ import annotations

import http.client
import json
import pickle
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from lightning_rl.errors import CheckpointError, EnvApiError, EnvError
from lightning_rl.rllib import PPOTrainer, policy_server
from lightning_rl.rllib.agents.callbacks import DefaultCallbacks
from lightning_rl.rllib.agents.dqn import DQNTrainer
from lightning_rl.rllib.agents.pg import PGTrainer
from lightning_rl.rllib.env.policy_client import PolicyClient
from lightning_rl.rllib.env.policy_server_input import PolicyServerInput
from lightning_rl.rllib.offline import JsonReader
from lightning_rl.rllib.policy import build_torch_policy
from lightning_rl.rllib.wire import decode, encode
from lightning_rl.sample_batch import Fragment, MultiAgentBatch, SampleBatch
from tests.rllib.examples.training import train_until
from tests.rllib.external import LEARNS, AgentsServing, Classic, Counting

SPACES = {"observation_space": Counting.observation_space, "action_space": Counting.action_space}


@contextmanager
def serving(
    trainer: Any = PPOTrainer, env: Any = Counting, **keys: Any
) -> Iterator[tuple[Any, list[PolicyServerInput]]]:
    """A trainer whose workers are servers at free ports, and again at these after a restore."""
    servers: list[PolicyServerInput] = []
    ports: dict[int, int] = {}

    def make(context: Any) -> PolicyServerInput | None:
        if context.worker_index == 0 and context.worker.num_workers > 0:
            return None
        port = ports.get(context.worker_index, 0)
        servers.append(PolicyServerInput(context, "localhost", port, idle_timeout=0.2))
        ports[context.worker_index] = servers[-1].server_port
        return servers[-1]

    own = {"observation_space": env.observation_space, "action_space": env.action_space}
    made = trainer(config={"env": None, "input": make, **own, **keys})
    try:
        yield made, servers
    finally:
        made.stop()


def play(client: PolicyClient, env: Any, choose: Callable[[], Any] = lambda: None) -> None:
    """Play episodes until the server stops; `choose()` may give an action in place of the policy's."""
    try:
        while True:
            episode, obs, done = client.start_episode(), env.reset(), False
            while not done:
                action = choose()
                if action is None:
                    action = client.get_action(episode, obs)
                else:
                    client.log_action(episode, obs, action)
                obs, reward, done, info = env.step(action)
                client.log_returns(episode, reward, info=info)
            client.end_episode(episode, obs)
    except EnvError as error:
        if "training has stopped" not in str(error) and "no policy server answers" not in str(error):
            raise


def start(target: Callable[..., Any], *arguments: Any) -> threading.Thread:
    """A thread that calls `target`."""
    thread = threading.Thread(target=target, args=arguments, daemon=True)
    thread.start()
    return thread


def address(server: PolicyServerInput) -> str:
    return f"localhost:{server.server_port}"


@pytest.mark.parametrize("mode", ["local", "remote"])
def test_ppo_learns_from_two_clients(mode: str) -> None:
    with serving(env=Classic(), **LEARNS) as (made, (server,)):
        clients = [PolicyClient(address(server), mode, update_interval=0.1) for _ in range(2)]
        threads = [start(play, client, Classic(500 * index)) for index, client in enumerate(clients)]
        result = train_until(made, 45, 25)
        assert result["timesteps_total"] >= 2000 and result["episodes_total"] > 60
    for thread in threads:
        thread.join(timeout=20)
        assert not thread.is_alive(), "clients end when the server stops"


@pytest.mark.parametrize("mode", ["local", "remote"])
def test_callbacks_and_output_get_what_clients_play(
    mode: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Samples of four episodes of 6 steps; callbacks of the server's process cannot run in that of a local policy."""
    rows: list[int] = []

    class Watching(DefaultCallbacks):
        def on_episode_end(self, *, episode: Any, **keywords: Any) -> None:
            episode.custom_metrics["length"] = episode.length

        def on_sample_end(self, *, worker: Any, samples: Any, **keywords: Any) -> None:
            rows.append(samples.count)
            samples["rewards"] = 2 * samples["rewards"]

        def on_postprocess_trajectory(self, *, episode: Any, postprocessed_batch: Any, **keywords: Any) -> None:
            assert (postprocessed_batch["rewards"] == 2).all()
            assert (episode.last_observation_for() is not None) == (mode == "remote")

    keys = {"train_batch_size": 40, "rollout_fragment_length": 20, "callbacks": Watching, "output": str(tmp_path)}
    with serving(PGTrainer, **keys) as (made, (server,)):
        start(play, PolicyClient(address(server), mode), Counting(6))
        result = made.train()
    assert rows[:2] == [24, 24] and result["episodes_total"] >= 4
    expected = dict.fromkeys(("length_mean", "length_min", "length_max"), 6.0) if mode == "remote" else {}
    assert result["custom_metrics"] == expected
    written = JsonReader(tmp_path)
    assert [written.next().count for _ in range(2)] == [24, 24]
    assert ("inference_mode='remote' only" in caplog.text) == (mode == "local")


def test_an_error_of_a_callback_on_the_server_ends_the_training() -> None:
    class Failing(DefaultCallbacks):
        def on_episode_end(self, *, episode: Any, **keywords: Any) -> None:
            raise ValueError("this episode")

    with serving(PGTrainer, callbacks=Failing, train_batch_size=40) as (made, (server,)):
        client = PolicyClient(address(server), "remote")

        def play_until_it_fails() -> None:
            with suppress(EnvError):
                play(client, Counting(6))

        thread = start(play_until_it_fails)
        with pytest.raises(ValueError, match="this episode"):
            made.train()
        thread.join(timeout=20)


def test_workers_are_servers_at_ports_of_their_own() -> None:
    with serving(PGTrainer, num_workers=2, train_batch_size=60, rollout_fragment_length=20) as (made, servers):
        assert len({server.server_port for server in servers}) == 2
        start(play, PolicyClient(address(servers[1]), "remote"), Counting(5))
        assert made.train()["timesteps_total"] == 60, "a server without clients keeps no other waiting"
        start(play, PolicyClient(address(servers[0]), "remote"), Counting(7))
        result = made.train()
        for _ in range(50):
            result = made.train()
            if result["hist_stats"]["episode_lengths"][-20:].count(7):
                break
        assert {*result["hist_stats"]["episode_lengths"]} == {5, 7}


def test_a_replay_algorithm_learns_from_logged_actions() -> None:
    """RLlib's server program, with its keys for DQN."""
    keys = {"replay_buffer_config": {"learning_starts": 100}, "min_sample_timesteps_per_iteration": 200}
    keys |= {"n_step": 3, "rollout_fragment_length": 4, "train_batch_size": 8, "off_policy_estimation_methods": {}}
    with serving(DQNTrainer, **keys, callbacks=None, model={"fcnet_hiddens": [8]}) as (made, (server,)):
        start(play, PolicyClient(address(server), "local"), Counting(6), lambda: 2)
        result = made.train()
        stored = made.datamodule.source.buffer.sample(64, np.random.default_rng(0))
    assert result["timesteps_total"] >= 200 and result["gradient_steps"] >= 20
    assert (stored.actions == 2).all() and result["episode_len_mean"] == 6


def test_a_client_that_dies_keeps_nobody_from_training() -> None:
    with serving(train_batch_size=50, rollout_fragment_length=10) as (made, (server,)):
        dead = PolicyClient(address(server), "remote")
        episode = dead.start_episode()
        asked = start(dead.get_action, episode, np.zeros(2))
        asked.join(timeout=20)
        dead.log_returns(episode, 1.0)
        del dead
        start(play, PolicyClient(address(server), "remote"), Counting(6))
        assert [made.train()["timesteps_total"] for _ in range(2)] == [50, 100]


def weights_of(client: PolicyClient) -> dict[str, Any]:
    """The weights that a client acts with."""
    assert client._inference is not None
    return client._inference.policy.get_weights()


def equal(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether two results of `get_weights` are the same."""
    return all(np.array_equal(values, second[name]) for name, values in first.items())


def test_weights_reach_a_local_policy_when_it_asks() -> None:
    with serving(train_batch_size=40, rollout_fragment_length=10) as (made, (server,)):
        client = PolicyClient(address(server), "local", update_interval=None)
        before = weights_of(client)
        start(play, client, Counting(6))
        made.train()
        assert equal(before, weights_of(client)) and not equal(before, made.policy.get_weights())
        updating = start(client.update_policy_weights)
        while updating.is_alive():  # it waits until the learner has taken what the client reports
            server.next()
        assert equal(made.policy.get_weights(), weights_of(client))
        assert client._inference is not None and client._inference.policy.env_steps == made.policy.env_steps == 40


def test_a_server_has_the_weights_of_the_learner_between_iterations() -> None:
    with serving(train_batch_size=20, rollout_fragment_length=10) as (made, (server,)):
        start(play, PolicyClient(address(server), "remote"), Counting(6))
        made.train()
        late = PolicyClient(address(server), "local")
        assert equal(made.policy.get_weights(), weights_of(late))
        made.set_weights({"default_policy": {name: 0 * each for name, each in made.policy.get_weights().items()}})
        late.update_policy_weights()
        assert not any(each.any() for each in weights_of(late).values())


@pytest.mark.parametrize("mode", ["local", "remote"])
def test_clients_act_when_training_is_over(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_server, "PATIENCE", 0.05)
    with serving(train_batch_size=20, rollout_fragment_length=5) as (made, (server,)):
        client, env = PolicyClient(address(server), mode, update_interval=None), Counting(10**9)
        playing = start(play, client, env)
        made.train()
        last = env.now
        while env.now < last + 100:
            assert playing.is_alive()
            time.sleep(0.01)
        client.update_policy_weights()
        assert made.train()["timesteps_total"] == 40


@pytest.mark.parametrize("mode", ["local", "remote"])
def test_clients_may_start_new_episodes_after_a_restore(mode: str, tmp_path: Path) -> None:
    over = threading.Event()

    def play_on(client: PolicyClient) -> None:
        while not over.is_set():
            play(client, Counting(6))

    with serving(train_batch_size=20, rollout_fragment_length=5) as (made, servers):
        playing = start(play_on, PolicyClient(address(servers[0]), mode))
        made.train()
        made.restore(made.save(tmp_path))
        assert [server.stopped for server in servers] == [True, False]
        assert made.train()["timesteps_total"] == 40 and playing.is_alive()
        over.set()


@pytest.mark.parametrize(("mode", "error"), [("local", EnvApiError), ("remote", EnvError)])
def test_the_client_learns_which_observation_does_not_fit(mode: str, error: type[Exception]) -> None:
    with serving() as (_, (server,)):
        client = PolicyClient(address(server), mode)
        episode = client.start_episode()
        with pytest.raises(error, match=r"observation .*\(3,\) does not fit the space Box\(.*\(2,\)"):
            client.get_action(episode, np.zeros(3))
        assert client.get_action(episode, np.zeros(2)) in Counting.action_space, "the episode is still open"


@pytest.mark.parametrize("by_agent", [False, True])
def test_a_dict_of_actions_is_one_agent_s_unless_policies_are_given(by_agent: bool) -> None:
    """A Dict space of "x" and "y" is that of one agent; with `multiagent.policies` these are two agents."""
    obs, acted = spaces.Box(0, 1, (2,)), spaces.Discrete(3)
    shared = {"policies": {"shared"}, "policy_mapping_fn": lambda agent, *more, **keywords: "shared"}
    keys = {"multiagent": shared} if by_agent else {}
    keys |= {"observation_space": spaces.Dict(x=obs, y=obs), "action_space": spaces.Dict(x=acted, y=acted)}
    with serving(PGTrainer, **keys) as (made, (server,)):
        client = PolicyClient(address(server), "remote")
        action = client.get_action(client.start_episode(), {"x": [0.0, 1.0], "y": [1.0, 0.0]})
        assert set(action) == {"x", "y"} and bool(made.policy.agents) == by_agent


def test_a_policy_of_functions_acts_on_the_server_only() -> None:
    policy = build_torch_policy("Own", loss_fn=lambda policy, model, dist, batch: model.value_function().mean())
    with serving(PPOTrainer.with_updates(default_policy=policy)) as (_, (server,)):
        with pytest.raises(CheckpointError, match="Own") as refused:
            PolicyClient(address(server), "local")
        assert "remote" in refused.value.__notes__[0]
        client = PolicyClient(address(server), "remote")
        assert client.get_action(client.start_episode(), np.zeros(2)) in Counting.action_space


def test_addresses_and_modes_are_checked() -> None:
    with socket.create_server(("localhost", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(EnvError, match=f"localhost:{port}"):
        PolicyClient(f"http://localhost:{port}")
    with pytest.raises(ValueError, match="inference_mode='here'"):
        PolicyClient("localhost:1", "here")


def post(server: PolicyServerInput, content: bytes, **headers: str) -> tuple[int, Any]:
    """The status and the answer to a message."""
    connection = http.client.HTTPConnection("localhost", server.server_port)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("POST", "/", content, {"Content-Type": "application/json", **given})
    response = connection.getresponse()
    status, answer = response.status, decode(response.read())
    connection.close()
    return status, answer


def test_a_server_runs_and_imports_nothing_that_it_is_sent() -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return pytest.fail, ("code was run",)

    with serving() as (_, (server,)):
        for content in (
            pickle.dumps(Bomb()),
            b'{"command": "shutdown", "arguments": []}',
            b"[]",
            b'{"command": "__init__"}',
        ):
            assert post(server, content)[0] == http.HTTPStatus.BAD_REQUEST


def test_a_server_refuses_requests_of_web_pages_and_of_no_length() -> None:
    """A page may post text to any host without asking it first, and JSON to its own name for this machine."""
    content = encode({"command": "get_weights", "arguments": []})
    with serving() as (_, (server,)):
        assert post(server, content)[0] == http.HTTPStatus.OK
        for headers in ({"Content_Type": "text/plain"}, {"Origin": "http://page.example"}, {"Content_Length": "-1"}):
            assert post(server, content, **headers)[0] == http.HTTPStatus.BAD_REQUEST
        assert post(server, b"", Content_Length=str(2**40))[0] == http.HTTPStatus.BAD_REQUEST


def test_malformed_messages_get_an_answer() -> None:
    """`[1]` has no columns (AttributeError), and a shape of 2^70 no memory (OverflowError)."""
    shape = {"=": "array", "dtype": "<f4", "shape": [2**70], "data": ""}
    with serving() as (_, (server,)):
        for content in (b'{"=": "fragment", "columns": [1]}', json.dumps(shape).encode()):
            status, answer = post(server, content)
            assert status >= 400 and answer
        assert post(server, encode({"command": "get_weights", "arguments": []}))[0] == http.HTTPStatus.OK


@pytest.mark.parametrize("several", [False, True], ids=["one agent", "several agents"])
def test_secrets_of_the_config_are_not_served(several: bool) -> None:
    keys: dict[str, Any] = {"env_config": {"api_key": "SECRET"}, "output": "/SECRET", "input_config": {"p": "SECRET"}}
    keys["gamma"] = 0.5
    env: Any = Counting
    if several:
        env = AgentsServing({"a": 1, "b": 1})
        own = (None, Counting.observation_space, Counting.action_space, {})
        keys["multiagent"] = {"policies": {"p": own}, "policy_mapping_fn": lambda agent, *_, **__: "p"}
    with serving(PGTrainer, env, **keys) as (_, (server,)):
        _, answer = post(server, encode({"command": "get_worker", "arguments": []}))
        assert b"SECRET" not in answer["policy"] and b"gamma" in answer["policy"]
        client = PolicyClient(address(server), "local")
        assert client._inference is not None
        assert client._inference.policy.get_policy("p" if several else None).gamma == 0.5


def spoiled(fragment: Fragment, **columns: Any) -> Fragment:
    """The fragment with other columns; without those that are `None`."""
    kept = fragment.without(*columns)
    return Fragment(dict(kept.items()), **{name: column for name, column in columns.items() if column is not None})


def test_experience_that_does_not_fit_the_policy_is_refused() -> None:
    """A fragment of an older program, or a forged one, may not end training: `Counting` has Box(2) and Discrete(3)."""
    with serving(train_batch_size=2, rollout_fragment_length=1, sgd_minibatch_size=2) as (made, (server,)):
        good = server.reports.example
        bad = [
            5,
            SampleBatch(good),
            MultiAgentBatch({"default_policy": good}, 10, 1),
            Fragment(obs=good.obs),
            spoiled(good, action_logp=None),
            spoiled(good, more=good.rewards),
            spoiled(good, obs=torch.zeros(2, 1, 3)),
            spoiled(good, obs=good.obs[1:]),
            spoiled(good, obs=good.obs.double()),
            spoiled(good, obs=good.obs + float("nan")),
            spoiled(good, rewards=good.rewards + float("inf")),
            spoiled(good, actions=torch.full_like(good.actions, 3)),
            spoiled(good, valid=good.valid.int()),
        ]
        reports = [(samples, []) for samples in bad]
        reports += [
            (good, 5),
            (good, [(1.0, 2)]),
            (good, [("x", 1, {}, False)]),
            (good, [(1.0, 1, {"a": ("q", 1)}, 0)]),
        ]
        for report in reports:
            status, answer = post(server, encode({"command": "report_samples", "arguments": report}))
            assert status == http.HTTPStatus.BAD_REQUEST and answer, report
        for _ in range(2):
            assert post(server, encode({"command": "report_samples", "arguments": (good, [])}))[0] == 200
        assert made.train()["timesteps_total"] == 2


def test_experience_of_unknown_policies_is_refused() -> None:
    own = (None, Counting.observation_space, Counting.action_space, {})
    keys = {"multiagent": {"policies": {"p": own}, "policy_mapping_fn": lambda agent, *_, **__: "p"}}
    with serving(PGTrainer, AgentsServing({"a": 1, "b": 1}), **keys) as (_, (server,)):
        good = server.reports.example
        assert post(server, encode({"command": "report_samples", "arguments": (good, [])}))[0] == 200
        for bad in (
            good["p"],
            MultiAgentBatch({"r": good["p"]}, 1, 1),
            MultiAgentBatch({"p": good["p"]}, -1, 1),
            MultiAgentBatch({"p": good["p"]}, 1, None),
        ):
            status, _ = post(server, encode({"command": "report_samples", "arguments": (bad, [])}))
            assert status == http.HTTPStatus.BAD_REQUEST, bad


def test_numbers_that_are_not_finite_are_refused_where_they_are_logged() -> None:
    """In the worker they would end the sampling of all clients."""
    with serving() as (_, (server,)):
        client = PolicyClient(address(server), "remote")
        episode = client.start_episode()
        with pytest.raises(EnvError, match="nan"):
            client.log_returns(episode, float("nan"))
        with pytest.raises(EnvError, match="nan"):
            client.get_action(episode, np.full(2, np.nan))
        assert client.get_action(episode, np.zeros(2)) in Counting.action_space


def test_messages_arrive_as_they_were_sent() -> None:
    sent_obs = torch.rand(3, 1, 2)
    fragment = Fragment(obs=SampleBatch(a=sent_obs), valid=torch.ones(2, 1, dtype=torch.bool))
    sent = {
        1: (np.float32(0.5), [True, None, "text"], b"\x00\xff"),
        "array": np.arange(6, dtype=np.int8).reshape(2, 3),
        "empty": np.zeros((0, 2), np.float64),
        "batch": MultiAgentBatch({"one": fragment}, 2, 1),
    }
    got = decode(encode(sent))
    assert got[1] == (0.5, [True, None, "text"], b"\x00\xff") and got["empty"].shape == (0, 2)
    assert got["array"].dtype == np.int8 and np.array_equal(got["array"], sent["array"])
    part: Any = got["batch"]["one"]
    assert isinstance(part, Fragment) and got["batch"].env_steps == 2 and got["batch"].num_envs == 1
    obs: Any = part.obs
    assert torch.equal(obs["a"], sent_obs) and part.valid.dtype == torch.bool
    for value in (object(), np.array([None]), {"info": spaces}):
        with pytest.raises(TypeError, match="cannot be sent"):
            encode(value)


CLIENT = """
import sys
import gymnasium as gym
from lightning_rl.rllib.env.policy_client import PolicyClient

env = gym.make("CartPole-v1", max_episode_steps=200)
client = PolicyClient(sys.argv[2], inference_mode=sys.argv[1], update_interval=0.5)
obs, _ = env.reset(seed=0)
eid = client.start_episode(training_enabled=True)
for _ in range(100_000):
    action = client.get_action(eid, obs)
    obs, reward, terminated, truncated, info = env.step(action)
    client.log_returns(eid, reward, info=info)
    if terminated or truncated:
        client.end_episode(eid, obs)
        obs, _ = env.reset()
        eid = client.start_episode(training_enabled=True)
"""


@pytest.mark.process
@pytest.mark.parametrize("mode", ["local", "remote"])
def test_a_client_in_another_process_trains_and_may_be_replaced(mode: str) -> None:
    with serving(env=Classic(), **LEARNS) as (made, (server,)):
        command = [sys.executable, "-c", textwrap.dedent(CLIENT), mode, address(server)]
        first = subprocess.Popen(command)
        made.train()
        first.kill()
        first.wait()
        second = subprocess.Popen(command)
        train_until(made, 40, 25)
        second.kill()
        second.wait()
