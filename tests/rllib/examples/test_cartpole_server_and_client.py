"""serving/cartpole_server and cartpole_client: a server that creates no environment, and the client that has it."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from gymnasium.spaces import Box, Discrete

from lightning_rl.errors import EnvError
from lightning_rl.rllib.algorithms.registry import get_algorithm_class
from lightning_rl.rllib.env.policy_client import PolicyClient
from lightning_rl.rllib.env.policy_server_input import PolicyServerInput
from tests.rllib.examples.envs import CartPole
from tests.rllib.examples.training import train_until

SERVER_ADDRESS = "localhost"


def run_client(port: int, inference_mode: str) -> None:
    """The client's loop, until the server stops."""
    env = CartPole()
    # An iteration takes less than the 10 seconds after which a client asks for new weights by default.
    client = PolicyClient(f"http://localhost:{port}", inference_mode=inference_mode, update_interval=0.1)
    obs = env.reset()
    eid = client.start_episode(training_enabled=True)
    while True:
        action = client.get_action(eid, obs)
        obs, reward, done, info = env.step(action)
        client.log_returns(eid, reward, info=info)
        if done:
            client.end_episode(eid, obs)
            obs = env.reset()
            eid = client.start_episode(training_enabled=True)


@pytest.mark.parametrize("inference_mode", ["remote", pytest.param("local", marks=pytest.mark.every)])
def test_the_server_learns_from_its_client(inference_mode: str) -> None:
    clients: list[threading.Thread] = []

    def serve(port: int) -> None:
        with pytest.raises(EnvError):
            run_client(port, inference_mode)

    def _input(ioctx: Any) -> PolicyServerInput | None:
        if ioctx.worker_index > 0 or ioctx.worker.num_workers == 0:
            server = PolicyServerInput(ioctx, SERVER_ADDRESS, 0)
            clients.append(threading.Thread(target=serve, args=(server.server_port,), daemon=True))
            clients[-1].start()
            return server
        return None

    config = {
        "env": None,
        "observation_space": Box(float("-inf"), float("inf"), (4,)),
        "action_space": Discrete(2),
        "input": _input,
        "num_workers": 2,
        "off_policy_estimation_methods": {},
        "callbacks": None,
        "framework": "torch",
        "log_level": "INFO",
        "rollout_fragment_length": 200,
        "train_batch_size": 800,
        "num_sgd_iter": 10,
        "lr": 1e-3,
        "model": {"use_lstm": False},
    }
    algo = get_algorithm_class("PPO")(config=config)
    result = train_until(algo, 40, 25)
    algo.stop()
    for client in clients:
        client.join(timeout=20)
    assert len(clients) == 2 and not any(client.is_alive() for client in clients)
    assert result["timesteps_total"] % 200 == 0
