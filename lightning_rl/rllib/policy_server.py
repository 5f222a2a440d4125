"""The server of a policy: experience of clients in the place of samples."""

from __future__ import annotations

import io
import itertools
import logging
import queue
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch

from lightning_rl.errors import CheckpointError, EnvError
from lightning_rl.rllib.offline.input_reader import InputReader
from lightning_rl.rllib.offline.io_context import IOContext
from lightning_rl.rllib.policy_client import Inference
from lightning_rl.rllib.report_check import ReportCheck
from lightning_rl.rllib.wire import decode, encode
from lightning_rl.rllib.workers import ReadingWorker
from lightning_rl.rollouts.episodes import Episode
from lightning_rl.rollouts.rollout_worker import EPISODE_HOOKS
from lightning_rl.sample_batch import SampleBatch

__all__ = ["PolicyServerInput"]

log = logging.getLogger(__name__)

EPISODE_CALLS = ("start_episode", "get_action", "log_action", "log_returns", "end_episode")
MOST_WAITING = 1  # fragments that wait for the learner before clients do
WAITING = ("get_action", "log_action", "report_samples")  # do so until the learner has taken what waits for it
PATIENCE = 2.0  # seconds that they wait for the next iteration; then the oldest experience is dropped
MOST_BYTES = 2**30  # of a message
HIDDEN = ("callbacks", "env_config", "evaluation_config", "logger_config")  # keys that clients do not get
HIDDEN += ("input", "input_config", "output", "output_config")
OPTIONS = ("fragment_length", "batch_mode", "count_resets", "explore", "record_logp", "seed", "logical_workers")


class PolicyServerInput(ThreadingHTTPServer, InputReader):
    """Serves the policy in training to clients, whose experience it is trained with: a value of the key `input`.

    Messages are JSON, and are never run or imported. Everyone who reaches the port can act, read the policy and its
    settings except for the keys `HIDDEN`, and send experience, which is refused if it does not fit the policy. Clients
    that are faster than the learner wait for it: experience of old weights would pile up. If none of it is taken for
    `PATIENCE` seconds outside of `train()`, they continue, and only the newest experience is kept.

    Args:
        ioctx: the context of the key `input`.
        address: the network interface, as "localhost" or "0.0.0.0".
        port: the TCP port; 0: a free one, which `server_port` says.
        idle_timeout: seconds after which `next` returns an empty batch if no experience has come.

    Raises:
        OSError: the port is taken.
    """

    daemon_threads = True

    def __init__(self, ioctx: IOContext, address: str, port: int, idle_timeout: float = 3.0) -> None:
        self.idle_timeout, self.learner = idle_timeout, ioctx.worker.policy
        self.worker = ioctx.worker.workers.local_worker()
        self.options = {name: getattr(self.worker, name) for name in OPTIONS}
        self._samples: queue.Queue[Any] = queue.Queue()
        self._taken = threading.Condition()
        self._clients = itertools.count(1 + 1000 * ioctx.worker_index)
        self._served: Any = None  # the learner's counters when the weights were copied
        self._idle_since: float | None = time.monotonic()  # `None`: an iteration is running
        try:
            super().__init__((address, port), Handler)
        except OSError as error:
            error.add_note(f"PolicyServerInput at {address}:{port}: choose another port, or end what listens there")
            raise
        policy = self.learner.copy_for_acting()
        self.reports = ReportCheck(policy, self.options)
        hooks = {name: self.worker.hooks[name] for name in EPISODE_HOOKS}
        self.inference = Inference(policy, self.options, ioctx.worker_index, self._add, hooks)
        self._reading = ReadingWorker(self.worker)
        self._warns_of_local = any(hooks[name] for name in EPISODE_HOOKS if name != "on_sample_end")
        self.worker.hooks["on_worker_stop"].append(lambda worker: self.stop())
        threading.Thread(target=self.serve_forever, name="policy server", daemon=True).start()
        log.info("policy server at %s:%s", address, self.server_port)

    def next(self) -> Any:
        """A fragment of a client, or an empty batch; clients act with the newest weights from now on.

        Raises:
            Exception: acting has failed, or a callback.
        """
        if self._counters != self._served:
            self.update_weights()
        with self._taken:
            self._idle_since = None
        try:
            samples, episodes, numbers = self._samples.get(timeout=self.idle_timeout)
        except queue.Empty:
            if (failure := self.inference.env.served.failure) is not None:
                raise failure from None
            return SampleBatch()
        with self._taken:
            self._taken.notify_all()
        self.worker.episodes.finished += [(0, episode) for episode in episodes]
        if numbers is None:  # a client has played it
            with self.inference.sampler.turn:  # in which callbacks are called
                self._reading.end_sample(samples)
        for name, values in (numbers or {}).items():
            for value in values:
                self.worker.record_value(name, value)
        return samples

    def update_weights(self) -> None:
        """Let clients act with the present weights from now on; local ones when they ask for weights next."""
        self._served = self._counters
        steps = {name: policy.env_steps for name, policy in self.learner.policies.items()}
        self.inference.set_weights(self.learner.get_weights(), steps)
        with self._taken:
            self._idle_since = time.monotonic()
            self._taken.notify_all()

    @property
    def _counters(self) -> tuple[int, int]:
        return self.learner.gradient_steps, self.learner.env_steps

    def stop(self) -> None:
        """Close the port; clients that ask get an error."""
        if not self.stopped:
            with self._taken:
                self.stopped = True
                self._taken.notify_all()
            self.inference.sampler.stop()
            self.shutdown()
            self.server_close()

    def answer(self, command: str, arguments: list[Any]) -> Any:
        """What a client gets for a message.

        Raises:
            ValueError: it is malformed, no episode is open for it, or samples do not fit the policy.
            EnvError: an observation does not fit, or training has stopped.
        """
        if command in WAITING:
            self._wait_for_learner()
        if self.stopped:
            raise EnvError("training has stopped")
        if command in EPISODE_CALLS:
            return getattr(self.inference.env, command)(*arguments)
        if command == "get_worker":
            if self._warns_of_local:
                log.warning(
                    "a client with inference_mode='local' plays episodes in its own process: on_episode_start, "
                    "on_episode_step and on_episode_end of this trainer's callbacks are called for clients with "
                    "inference_mode='remote' only"
                )
                self._warns_of_local = False
            return {"policy": self._checkpoint(), "options": self.options, "index": next(self._clients)}
        if command == "get_weights":
            return self.inference.get_weights()
        if command == "report_samples":
            samples, episodes = arguments
            return self._add(self.reports.samples(samples), self.reports.episodes(episodes), None)
        raise ValueError(f"command {command!r} is unknown: the client is of another version")

    def _wait_for_learner(self) -> None:
        """Wait until the learner has taken experience; drop the oldest of it if no iteration begins."""
        with self._taken:
            while self._samples.qsize() > MOST_WAITING and not self.stopped:
                idle = self._idle_since
                left = None if idle is None else idle + PATIENCE - time.monotonic()
                if left is None or left > 0:
                    self._taken.wait(left)
                else:
                    self._samples.get_nowait()  # not empty: `next` takes nothing while idle

    def _add(self, samples: Any, episodes: list[Episode], numbers: dict[str, list[float]] | None) -> None:
        self._samples.put((samples, episodes, numbers))

    def _checkpoint(self) -> bytes:
        """The policy as a file that `Policy.load` reads."""
        with self.inference.sampler.turn:
            checkpoint: dict[str, Any] = {"state_dict": self.inference.policy.state_dict()}
            try:
                self.inference.policy.on_save_checkpoint(checkpoint)
            except CheckpointError as error:
                raise ValueError(f"the policy cannot act in a client: {error}; use inference_mode='remote'") from error
            keywords = checkpoint["policy"]["kwargs"]
            for each in (keywords, *keywords.get("policies", {}).values()):
                if "config" in each:
                    each["config"] = {key: value for key, value in each["config"].items() if key not in HIDDEN}
            file = io.BytesIO()
            torch.save(checkpoint, file)
        return file.getvalue()


class Handler(BaseHTTPRequestHandler):
    """Answers one message."""

    protocol_version = "HTTP/1.1"  # connections are kept
    wbufsize = -1  # an answer is one write
    server: PolicyServerInput  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_POST(self) -> None:
        """Answer, or say what is wrong with the message."""
        status = HTTPStatus.OK
        try:
            message = self._read()
            content = encode(self.server.answer(message["command"], message["arguments"]))
        except (KeyError, RuntimeError, TypeError, ValueError) as error:
            status, content = HTTPStatus.BAD_REQUEST, encode(str(error))
        except Exception as error:
            log.exception("policy server: a message has no answer")
            status, content = HTTPStatus.INTERNAL_SERVER_ERROR, encode(f"{type(error).__name__}: {error}")
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        if self.close_connection or self.server.stopped:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)

    def _read(self) -> Any:
        """The message.

        Raises:
            ValueError: its length is missing or too large, or it may come from a web page: a browser sends text to any
                host without asking it, and names the page's "Origin".
        """
        length = int(self.headers["Content-Length"] or -1)
        if not 0 <= length <= MOST_BYTES:
            self.close_connection = True  # what follows is not read
            raise ValueError(f"Content-Length is {length}; expected 0 to {MOST_BYTES}")
        content = self.rfile.read(length)
        kind, origin = self.headers.get_content_type(), self.headers["Origin"]
        if kind != "application/json" or origin is not None:
            raise ValueError(f"Content-Type is {kind}, Origin {origin}; expected application/json, and no Origin")
        return decode(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Log a request at level DEBUG."""
        log.debug(format, *args)
