"""An exported policy behind HTTP, by the standard library alone; an episode is played through it.

`POST /act` with `{"episode": "any name", "obs": …, "reward": 0.0}` answers `{"action": …}`; an episode's first request
starts with an empty memory, and `{"episode": …, "ended": true}` forgets it. Programs of this machine are answered, web
pages are not; a request has a size and a time limit, and a slow client keeps no other waiting.
`python docs/examples/serve_policy.py DIR 8000` serves what `lightning-rl export RUN --out DIR` wrote; that needs NumPy
and onnxruntime, no torch.
After 50 iterations of PPO on CartPole, an episode over HTTP (8 seconds): `return` ≥ 400 of 500.
"""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.request import urlopen

from lightning_rl.deploy import DeployedPolicy, load

MOST_BYTES = 2**20  # of a request
MOST_EPISODES = 1000  # at once


class Handler(BaseHTTPRequestHandler):
    """Acts for several episodes at once, each with a copy of the policy, which shares its network."""

    timeout = 10  # seconds without a byte after which a connection is closed
    policy: DeployedPolicy
    episodes: dict[str, DeployedPolicy]
    lock: threading.Lock

    def do_POST(self) -> None:
        """Answer with an action, or with a code of HTTP and what is wrong with the request."""
        code, answer = self.answer()
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps(answer, default=lambda value: value.tolist()).encode())  # of NumPy's arrays

    def answer(self) -> tuple[int, Any]:
        """The code and the content of the answer."""
        hosts = [f"{name}:{self.connection.getsockname()[1]}" for name in ("127.0.0.1", "localhost")]
        if self.headers["Host"] not in hosts or self.headers["Origin"]:  # a browser, for a page of another host
            return 403, {"error": f"expected a program that asks {hosts[0]}, not a web page"}
        size = self.headers["Content-Length"] or ""
        if not size.isdecimal() or len(size) > 9 or int(size) > MOST_BYTES:
            return 413, {"error": f"Content-Length is {size[:20]!r}; expected 0 to {MOST_BYTES} bytes"}
        try:
            request = json.loads(self.rfile.read(int(size)))
            with self.lock:
                return 200, self.act(**request)
        except TimeoutError:
            return 408, {"error": f"the request did not come within {self.timeout} seconds"}
        # Not JSON, other keys, or not an observation of the policy's space.
        except (TypeError, ValueError, RecursionError) as error:
            return 400, {"error": str(error)}

    def act(self, episode: str, obs: Any = None, mask: Any = None, reward: float = 0.0, ended: bool = False) -> Any:
        """The action for an episode's next observation."""
        if ended:
            return {"forgotten": self.episodes.pop(episode, None) is not None}
        if episode not in self.episodes and len(self.episodes) >= MOST_EPISODES:
            raise ValueError(f"{MOST_EPISODES} episodes are going on: end one of them")
        actor = self.episodes.setdefault(episode, self.policy.copy())
        return {"action": actor.act(obs, mask=mask, reward=reward)}

    def log_message(self, *arguments: Any) -> None:
        """No line per request."""


def make_server(export_dir: str, port: int = 0) -> ThreadingHTTPServer:
    """A server on this machine; port 0 takes a free one."""
    own = {"policy": load(export_dir), "episodes": {}, "lock": threading.Lock()}
    return ThreadingHTTPServer(("127.0.0.1", port), type("Handler", (Handler,), own))


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
