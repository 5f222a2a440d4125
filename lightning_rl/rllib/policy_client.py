"""The client of a policy server: an environment anywhere that asks for actions and reports rewards."""

from __future__ import annotations

import http.client
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from lightning_rl.errors import CheckpointError, EnvError
from lightning_rl.policies.checkpoints import load_policy
from lightning_rl.rllib.external_env import ExternalEnv
from lightning_rl.rllib.external_lanes import ExternalCreator
from lightning_rl.rllib.external_sampler import ExternalSampler, worker_of
from lightning_rl.rllib.wire import decode, encode
from lightning_rl.rollouts.episodes import Episode

__all__ = ["Inference", "PolicyClient"]


class Inference:
    """A policy that acts for clients: the server's copy of it, or that of one client.

    Args:
        policy: acts, and nothing else uses it.
        options: keywords of the `RolloutWorker`.
        index: number of the client; 0: the server.
        put: called with each fragment, the episodes that have ended since the last one, and the callbacks' numbers.
        hooks: the callbacks' methods that are called where episodes are played, by name.

    Attributes:
        env: the episodes.
    """

    def __init__(
        self,
        policy: Any,
        options: Mapping[str, Any],
        index: int,
        put: Callable[[Any, list[Episode], dict[str, list[float]]], Any],
        hooks: Mapping[str, list[Any]] | None = None,
    ) -> None:
        self.policy, self._put = policy, put
        spaces = policy.observation_space, policy.action_space
        self.env: ExternalEnv = ExternalCreator.of_spaces(*spaces, several=bool(policy.agents)).first
        self._worker = worker_of(self.env, policy, **options)
        self._worker.hooks |= hooks or {}
        self.sampler = ExternalSampler(self.env, self._worker, index)
        threading.Thread(target=self.sampler.give_to, args=(self._report,), name="inference", daemon=True).start()

    def get_weights(self) -> dict[str, Any]:
        """The weights, and the counts of environment steps that exploration follows."""
        with self.sampler.turn:
            steps = {name: policy.env_steps for name, policy in self.policy.policies.items()}
            return {"weights": self.policy.get_weights(), "env_steps": steps}

    def set_weights(self, weights: Mapping[str, Any], env_steps: Mapping[str, int]) -> None:
        """Act with a result of `get_weights` from now on."""
        with self.sampler.turn:
            self.policy.set_weights(weights)
            for name, steps in env_steps.items():
                self.policy.policies[name].env_steps = steps

    def _report(self, samples: Any) -> None:
        episodes = [episode for _, episode in self._worker.episodes.pop_finished()]
        self._put(samples, episodes, self._worker.get_metrics().get("numbers", {}))


class PolicyClient:
    """Gets the actions of a policy that a `PolicyServerInput` serves, and reports what they lead to.

    When the server stops, open episodes end with an `EnvError`. New ones may be started once there is a server again at
    the address.

    Args:
        address: where the server is: "localhost:9900" or "http://localhost:9900".
        inference_mode: "local": a copy of the policy acts in this process, and experience is sent in fragments;
            "remote": each action is asked of the server.
        update_interval: seconds after which a local policy gets new weights; `None`: only `update_policy_weights` does.
        trust: packages that the server's policy may name, if it acts here and is not one of this package's.

    Raises:
        ValueError: `inference_mode` is unknown.
        EnvError: there is no server at the address, or its policy cannot act in another process.
        CheckpointError: its policy names code that is not trusted.
    """

    def __init__(
        self,
        address: str,
        inference_mode: str = "local",
        update_interval: float | None = 10.0,
        *,
        trust: str | Sequence[str] = (),
    ) -> None:
        if inference_mode not in ("local", "remote"):
            raise ValueError(f"inference_mode={inference_mode!r}; expected 'local' or 'remote'")
        self.address = address if "://" in address else f"http://{address}"
        self._connections = threading.local()  # the thread that reports samples has its own
        self.update_interval, self._updated = update_interval, time.monotonic()
        self.trust = trust
        self._inference = self._copy_of_server() if inference_mode == "local" else None

    def start_episode(self, episode_id: str | None = None, training_enabled: bool = True) -> str:
        """Start an episode; see `ExternalEnv.start_episode`."""
        return self._call("start_episode", episode_id, training_enabled)

    def get_action(self, episode_id: Any, observation: Any) -> Any:
        """The policy's action; see `ExternalEnv.get_action`.

        Args:
            episode_id: an open episode; a list of them: `observation` and the result are dicts by episode.
            observation: the observation; with several agents, a dict by agent.
        """
        if isinstance(episode_id, list | tuple):
            return {each: self.get_action(each, observation[each]) for each in episode_id}
        return self._call("get_action", episode_id, observation)

    def log_action(self, episode_id: str, observation: Any, action: Any) -> None:
        """Record an action that something else than the policy chose; see `ExternalEnv.log_action`."""
        self._call("log_action", episode_id, observation, action)

    def log_returns(self, episode_id: str, reward: Any, info: Any = None, multiagent_done_dict: Any = None) -> None:
        """Add to the reward of the latest action; see the method of `ExternalEnv` or `ExternalMultiAgentEnv`."""
        done = () if multiagent_done_dict is None else (multiagent_done_dict,)
        self._call("log_returns", episode_id, reward, info, *done)

    def end_episode(self, episode_id: str, observation: Any) -> None:
        """End an episode; see `ExternalEnv.end_episode`."""
        self._call("end_episode", episode_id, observation)

    def update_policy_weights(self) -> None:
        """Get new weights now, if the policy acts in this process; after the experience that waits for the learner."""
        if self._inference is not None:
            self._inference.set_weights(**self._send("get_weights"))
            self._updated = time.monotonic()

    def _call(self, name: str, *arguments: Any) -> Any:
        if self._inference is None:
            return self._send(name, *arguments)
        if name == "start_episode" and self._inference.env.served.failure is not None:
            lost, self._inference = self._inference, self._copy_of_server()  # the server that is there now
            lost.sampler.stop()
        if self.update_interval is not None and time.monotonic() - self._updated > self.update_interval:
            self.update_policy_weights()
        return getattr(self._inference.env, name)(*arguments)

    def _copy_of_server(self) -> Inference:
        found = self._send("get_worker")
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory) / "policy.ckpt"
            file.write_bytes(found["policy"])
            try:
                policy = load_policy(file, trust=self.trust)
            except CheckpointError as error:
                error.add_note("inference_mode='remote' needs no copy of the policy in this process")
                raise
        return Inference(policy, found["options"], found["index"], self._report)

    def _report(self, samples: Any, episodes: list[Episode], numbers: dict[str, list[float]]) -> None:
        self._send("report_samples", samples, [(*each, each.by_agent, each.cut) for each in episodes])

    def _send(self, command: str, *arguments: Any) -> Any:
        """The server's answer.

        Raises:
            EnvError: it refused, or there is none.
        """
        place = urlsplit(self.address)
        if not hasattr(self._connections, "own"):
            kind = http.client.HTTPSConnection if place.scheme == "https" else http.client.HTTPConnection
            self._connections.own = kind(place.hostname or "", place.port)
        connection = self._connections.own
        try:
            content = encode({"command": command, "arguments": arguments})
            connection.request("POST", place.path or "/", content, {"Content-Type": "application/json"})
            response = connection.getresponse()
            status, answer = response.status, decode(response.read())
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise EnvError(f"no policy server answers at {self.address} ({type(error).__name__}: {error})") from error
        if status != http.HTTPStatus.OK:
            raise EnvError(answer)
        return answer
