"""An exported policy behind HTTP, by the standard library alone; an episode is played through it.

`POST /act` with `{"episode": "any name", "obs": …, "reward": 0.0}` answers `{"action": …}`; an episode's first request
starts with an empty memory, and `{"episode": …, "ended": true}` forgets it. `python docs/examples/serve_policy.py DIR
8000` serves what `lightning-rl export RUN --out DIR` wrote; that needs NumPy and onnxruntime, no torch.
After 50 iterations of PPO on CartPole, an episode over HTTP (8 seconds): `return` ≥ 400 of 500.
"""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.request import urlopen

from lightning_rl.deploy import DeployedPolicy, load


class Handler(BaseHTTPRequestHandler):
    """Acts for any number of episodes at once, each with a copy of the policy, which shares its network."""

    policy: DeployedPolicy
    episodes: dict[str, DeployedPolicy]

    def do_POST(self) -> None:
        """Answer with an action, or with 400 and what is wrong with the request."""
        try:
            code, answer = 200, self.act(**json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        except (TypeError, ValueError) as error:  # not JSON, other keys, or not an observation of the policy's space
            code, answer = 400, {"error": str(error)}
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps(answer, default=lambda value: value.tolist()).encode())  # of NumPy's arrays

    def act(self, episode: str, obs: Any = None, mask: Any = None, reward: float = 0.0, ended: bool = False) -> Any:
        """The action for an episode's next observation."""
        if ended:
            return {"forgotten": self.episodes.pop(episode, None) is not None}
        actor = self.episodes.setdefault(episode, self.policy.copy())
        return {"action": actor.act(obs, mask=mask, reward=reward)}

    def log_message(self, *arguments: Any) -> None:
        """No line per request."""


def make_server(export_dir: str, port: int = 0) -> HTTPServer:
    """A server on this machine; port 0 takes a free one."""
    return HTTPServer(("127.0.0.1", port), type("Handler", (Handler,), {"policy": load(export_dir), "episodes": {}}))


def main(iterations: int = 50, seed: int = 0) -> dict[str, float]:
    """Train, export, serve, and return the return of an episode that is played through the server."""
    import gymnasium as gym

    from lightning_rl import Algorithm

    algorithm = Algorithm("ppo", env="cartpole", config={"seed": seed})
    for _ in range(iterations):
        algorithm.train()
    algorithm.policy.export_model("served_policy")
    algorithm.stop()
    with make_server("served_policy") as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/act"
        env = gym.make("CartPole-v1")
        obs, total, ended = env.reset(seed=seed)[0], 0.0, False
        while not ended:
            answer = urlopen(url, json.dumps({"episode": "first", "obs": obs.tolist()}).encode(), timeout=10)
            obs, reward, terminated, truncated, _ = env.step(json.load(answer)["action"])
            total, ended = total + float(reward), terminated or truncated
        server.shutdown()
    return {"return": total}


if __name__ == "__main__":
    if len(sys.argv) > 2:
        make_server(sys.argv[1], int(sys.argv[2])).serve_forever()
    print(main())
