"""The HTTP server of docs/examples/serve_policy.py: real requests, errors, episodes side by side, no torch."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import gymnasium as gym
import pytest
import torch
from gymnasium import spaces

from lightning_rl.policies import PPO, Policy
from tests.run_processes import import_file

pytest.importorskip("onnxruntime")

EXAMPLE = Path(__file__).parents[1] / "docs" / "examples" / "serve_policy.py"
CART = gym.make("CartPole-v1")
ZEROS = [0.0] * 4


@pytest.fixture(scope="module")
def policy() -> Policy:
    """With memory, so that episodes must not mix."""
    model = {"fcnet_hiddens": [8], "use_gru": True, "lstm_cell_size": 8}
    policy = PPO(CART.observation_space, spaces.Discrete(2), model=model)
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight.mul_(4.0)
    return policy


@pytest.fixture(scope="module")
def url(policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("served")
    policy.export_model(folder)
    module = sys.modules["serve_policy"] = import_file(EXAMPLE)
    with module.make_server(str(folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/act"
        server.shutdown()


def ask(url: str, **request: Any) -> Any:
    return json.load(urlopen(url, json.dumps(request).encode(), timeout=10))


def test_two_episodes_at_once_are_those_of_the_policy(url: str, policy: Policy) -> None:
    """Each episode's actions follow its own memory."""
    envs = [gym.make("CartPole-v1") for _ in range(2)]
    observations = [env.reset(seed=seed)[0] for seed, env in enumerate(envs)]
    states = [[part[0] for part in policy.get_initial_state(1)] for _ in envs]
    taken = []
    for _ in range(8):
        for number, env in enumerate(envs):
            action, states[number], _ = policy.compute_single_action(observations[number], states[number])
            answer = ask(url, episode=f"episode {number}", obs=observations[number].tolist())
            assert answer == {"action": int(action)}
            taken.append(answer["action"])
            observations[number] = env.step(answer["action"])[0]
    assert set(taken) == {0, 1}


def test_a_wrong_request_is_answered_with_400_and_what_was_expected(url: str) -> None:
    for request, message in (
        ({"episode": "wrong", "obs": [1.0, 2.0]}, "obs has shape [2]; expected Box [4] of float32"),
        ({"episode": "wrong", "observation": [1.0]}, "unexpected keyword argument 'observation'"),
    ):
        with pytest.raises(HTTPError) as caught:
            ask(url, **request)
        assert caught.value.code == 400 and message in json.load(caught.value)["error"]
    assert ask(url, episode="wrong", ended=True) == {"forgotten": True}
    assert ask(url, episode="after", obs=ZEROS)["action"] in (0, 1), "the server still runs"


def answer_to(url: str, *lines: str, body: bytes = b"") -> bytes:
    """The answer to a request written by hand."""
    host, port = url.removeprefix("http://").removesuffix("/act").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as client:
        client.sendall("\r\n".join(["POST /act HTTP/1.1", *lines, "", ""]).encode() + body)
        return client.recv(4096)


def test_a_slow_or_lying_client_keeps_no_other_waiting(url: str) -> None:
    host = f"Host: {url.removeprefix('http://').removesuffix('/act')}"
    with socket.create_connection(("127.0.0.1", int(host.rpartition(":")[2])), timeout=60) as slow:
        slow.sendall(f"POST /act HTTP/1.1\r\n{host}\r\nContent-Length: 50\r\n\r\n{{".encode())
        for length in ("-1", "99999999999999", "9" * 5000, "1e3", ""):
            assert b" 413 " in answer_to(url, host, f"Content-Length: {length}")
        deep = b"[" * 100_000
        assert b" 400 " in answer_to(url, host, f"Content-Length: {len(deep)}", body=deep)
        assert ask(url, episode="quick", obs=ZEROS)["action"] in (0, 1)


def test_a_web_page_is_not_answered(url: str) -> None:
    """A page of another origin, and a host name that leads to this machine."""
    own = f"Host: {url.removeprefix('http://').removesuffix('/act')}"
    body = json.dumps({"episode": "page", "obs": ZEROS}).encode()
    size = f"Content-Length: {len(body)}"
    assert b" 403 " in answer_to(url, own, "Origin: http://example.org", size, body=body)
    assert b" 403 " in answer_to(url, "Host: example.org", size, body=body)
    assert b" 200 " in answer_to(url, own, size, body=body)


def test_episodes_at_once_are_limited(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["serve_policy"], "MOST_EPISODES", 1)
    with pytest.raises(HTTPError) as caught:
        for number in range(2):
            ask(url, episode=f"limited {number}", obs=ZEROS)
    assert "end one" in json.load(caught.value)["error"]


def test_the_server_runs_as_a_program_without_torch(policy: Policy, tmp_path: Path) -> None:
    policy.export_model(tmp_path / "export")
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    paths = os.pathsep.join([str(tmp_path), str(EXAMPLE.parents[2])])
    command = [sys.executable, str(EXAMPLE), str(tmp_path / "export"), str(port)]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": paths}) as server:
        try:
            for _ in range(200):
                assert server.poll() is None, "the server has ended"
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.05)
            env, total, ended = gym.make("CartPole-v1"), 0.0, False
            obs = env.reset(seed=0)[0]
            while not ended:
                answer = ask(f"http://127.0.0.1:{port}/act", episode="one", obs=obs.tolist())
                obs, reward, terminated, truncated, _ = env.step(answer["action"])
                total, ended = total + float(reward), terminated or truncated
            assert total >= 5
        finally:
            server.terminate()
