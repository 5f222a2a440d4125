"""Checks this package on a GPU, and measures it there, in eight minutes.

    python scripts/gpu_check.py --wheels wheels --python 3.12   # where there is a network: what that machine lacks
    python scripts/gpu_check.py --from wheels --out results     # on the machine with the card, without a network
    python scripts/gpu_check.py --cpu --out results             # tries the same on a CPU

Each part runs in its own process with a limit of seconds. Results are written after every part, so a run that is
cut leaves what it has. The exit code is 0 if all tests and parts passed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "gpu.md"
MARKS = ("<!-- figures -->", "<!-- end of figures -->")
PARTS = {"tests": 240, "ppo_cartpole": 35, "ppo_images": 45, "dqn": 70, "sac": 95, "features": 240}  # seconds at most
TOTAL = 470  # seconds

# Everything but torch that a run in one process needs, and pytest; Ray and TensorBoard are not among it.
PACKAGES = (
    "antlr4-python3-runtime", "cloudpickle", "Farama-Notifications", "fsspec", "gymnasium", "hydra-core", "iniconfig",
    "lightning", "lightning-utilities", "markdown-it-py", "mdurl", "numpy", "omegaconf", "packaging", "pillow",
    "pluggy", "psutil", "Pygments", "pytest", "pytest-timeout", "pytorch-lightning", "PyYAML", "rich", "torchmetrics",
    "tqdm", "typing_extensions",
)  # fmt: skip
EXACT = ("antlr4_python3_runtime",)  # a later version does not serve OmegaConf
PLATFORMS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_26", "manylinux_2_17", "manylinux2014", "manylinux_2_12")
LARGEST = 60 * 2**20  # bytes of all wheels


# -- wheels -----------------------------------------------------------------------------------------------------------
def collect_wheels(directory: Path, python: str) -> None:
    """Download wheels for Linux on x86-64; the versions are those of constraints.txt."""
    pinned = dict(re.findall(r"^([\w.-]+)==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    wanted = [f"{name}=={pinned[name]}" for name in PACKAGES]
    sources = [each for each in wanted if each.startswith("antlr4")]  # has no wheel; it is Python only
    pip = [sys.executable, "-m", "pip"]
    platforms = [f"--platform={name}_x86_64" for name in PLATFORMS]
    target = ["--no-deps", "--only-binary=:all:", "--implementation=cp", f"--python-version={python}", *platforms]
    wheels = [each for each in wanted if each not in sources]
    subprocess.run([*pip, "download", "-q", *target, "-d", str(directory), *wheels], check=True)
    subprocess.run([*pip, "wheel", "-q", "--no-deps", "-w", str(directory), *sources], check=True)
    size = sum(file.stat().st_size for file in directory.glob("*.whl"))
    print(f"{len(list(directory.glob('*.whl')))} wheels, {size / 2**20:.1f} MiB, for Python {python}: {directory}")
    if size > LARGEST:
        raise SystemExit(f"the wheels have more than {LARGEST >> 20} MiB: leave some out of PACKAGES")


def install_wheels(directory: Path, site: Path) -> None:
    """Install what this machine lacks, or has in an older version, into `site`, without a network."""
    needed = [wheel for wheel in sorted(directory.glob("*.whl")) if not is_installed(*wheel.name.split("-")[:2])]
    if not any(directory.glob("*.whl")):
        raise SystemExit(f"{directory} holds no wheels: collect them with --wheels {directory}")
    if needed:
        how = ["--no-index", "--no-deps", "--no-compile", "--upgrade", "--target", str(site)]
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", *how, *map(str, needed)], check=True)
    print(f"installed into {site}: {', '.join(wheel.name.split('-')[0] for wheel in needed) or 'nothing'}", flush=True)


def is_installed(name: str, wanted: str) -> bool:
    """Whether the machine has this version or a later one."""
    try:
        found = version(name)
    except PackageNotFoundError:
        return False
    return found == wanted or (name not in EXACT and numbers(found) >= numbers(wanted))


def numbers(text: str) -> tuple[int, ...]:
    """The numbers of a version."""
    return tuple(map(int, re.findall(r"\d+", text.partition("+")[0])))


# -- parts ------------------------------------------------------------------------------------------------------------
def run_parts(names: Sequence[str], out: Path, device: str, environment: dict[str, str], total: float) -> bool:
    """Run the parts; whether all passed."""
    started, results = time.monotonic(), {"machine": {}, "parts": {}}
    out.mkdir(parents=True, exist_ok=True)
    for name in ("machine", *names):
        left = total - (time.monotonic() - started)
        limit = min({"machine": 60, **PARTS}[name] * max(1.0, total / TOTAL), left)
        if limit < 10:
            results["parts"][name] = {"state": "no time left", "rows": [], "seconds": 0.0}
            continue
        part = run_part(name, out, device, environment, limit)
        if name == "machine":
            results["machine"] = {key: value for row in part["rows"] for key, value in row.items()}
            print(results["machine"], flush=True)
        else:
            results["parts"][name] = part
            failed = [row["test"] for row in part["rows"] if row.get("outcome") == "failed"]
            print(f"{name}: {part['state']} in {part['seconds']} s", *failed, sep="\n  ", flush=True)
        (out / "gpu_check.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        (out / "gpu.md").write_text(page(results), encoding="utf-8")
    # The last part takes what time is left; being cut is no failure of it.
    failed = [row for part in results["parts"].values() for row in part["rows"] if row.get("outcome") == "failed"]
    return not failed and all(
        part["state"] == "passed" for name, part in results["parts"].items() if name != "features"
    )


def run_part(name: str, out: Path, device: str, environment: dict[str, str], limit: float) -> dict[str, Any]:
    """Run one part in a process; it appends its results to a file, line by line."""
    rows, log, began = out / f"{name}.jsonl", out / "gpu_check.log", time.monotonic()
    rows.write_text("")
    command = [sys.executable, __file__, "--part", name, "--device", device, "--rows", str(rows)]
    with log.open("ab") as file, tempfile.TemporaryDirectory() as directory:
        process = subprocess.Popen(
            [*command, "--seconds", str(limit)], cwd=ROOT, env={**environment, "TMPDIR": directory}, stdout=file,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            state = "passed" if process.wait(limit) == 0 else "failed"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            state = "cut"
    found = [json.loads(line) for line in rows.read_text().splitlines()]
    rows.unlink()
    part = {"state": state, "rows": found, "seconds": round(time.monotonic() - began, 1)}
    if state == "failed":
        part["last_lines"] = log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:]
    return part


def page(results: dict[str, Any]) -> str:
    """docs/gpu.md with the tables of these results."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    machine, parts = results["machine"], results["parts"]
    lines = ["", ", ".join(f"{name}: {value}" for name, value in machine.items()) + ".", ""]
    lines += ["| part | state | passed | failed | skipped | seconds |", "|---|---|---|---|---|---|"]
    for name, part in parts.items():
        outcomes = [row.get("outcome") for row in part["rows"]]
        counts = [str(outcomes.count(each)) if any(outcomes) else "" for each in ("passed", "failed", "skipped")]
        lines.append(f"| {name} | {part['state']} | {' | '.join(counts)} | {part['seconds']} |")
    failed = [row for part in parts.values() for row in part["rows"] if row.get("outcome") == "failed"]
    lines += ["", *(f"- failed: `{row['test']}`: {row['why']}" for row in failed)]
    lines += ["", "| benchmark | side | value | unit |", "|---|---|---|---|"]
    for name, part in parts.items():
        lines += [
            f"| {name} | {row['side']} | {row['value']:,} | {row['unit']} |" for row in part["rows"] if "side" in row
        ]
    return "\n".join([before + MARKS[0], *lines, "", MARKS[1]]) + after


class Rows:
    """Results of a part, in a file that every result is appended to at once."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def add(self, **row: Any) -> None:
        """Append a result."""
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Append the outcome of a test, as a plugin of pytest."""
        if report.when == "call" or report.outcome != "passed":
            if report.when == "teardown" and report.outcome == "passed":
                return
            why = "" if report.passed else str(report.longrepr).strip().splitlines()[-1][:300]
            name = report.nodeid.partition("::")[2]
            self.add(test=name, outcome=report.outcome, seconds=round(report.duration, 2), why=why)


def run_tests(rows: Rows, device: str, seconds: float, *arguments: str) -> None:
    """Run the tests marked gpu."""
    import pytest

    os.environ["LIGHTNING_RL_GPU_TESTS_ON"] = device
    options = ["-q", "-m", "gpu", "-p", "no:cacheprovider", "tests/gpu", *arguments]
    raise SystemExit(int(pytest.main(options, plugins=[rows])))


def tests(rows: Rows, device: str, seconds: float) -> None:
    """Every test of a pipeline, precision, export and so on; compiled networks last."""
    run_tests(rows, device, seconds, "-k", "not every_feature")


def features(rows: Rows, device: str, seconds: float) -> None:
    """Every policy with every feature of docs/feature_matrix.md."""
    run_tests(rows, device, seconds, "-k", "every_feature")


def machine(rows: Rows, device: str, seconds: float) -> None:
    """Card, driver and versions."""
    import lightning
    import torch

    import lightning_rl

    if device == "cuda":
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        driver = subprocess.run(query, capture_output=True, text=True, check=False).stdout.split()
        rows.add(card=torch.cuda.get_device_name(0), driver=driver[0] if driver else "unknown", cuda=torch.version.cuda)
    else:
        rows.add(card="none: this was a try on the CPU")
    rows.add(torch=torch.__version__, lightning=lightning.__version__, python=platform.python_version())
    rows.add(cores=os.cpu_count(), lightning_rl=lightning_rl.__version__, ray_imported="ray" in sys.modules)


# -- benchmark: runs --------------------------------------------------------------------------------------------------
def ppo_cartpole(rows: Rows, device: str, seconds: float) -> None:
    """Env steps/s of PPO on CartPole with long rollouts; small networks are not what a GPU is for."""
    work = ("policy=ppo", "env=cartpole", "experiment=cartpole_throughput")
    for side, where, changes in (
        ("learner on the device", device, ()),
        ("learner and acting on the device", device, ("workers.act_on=learner",)),
        ("CPU", "cpu", ()),
    ):
        attempt(rows, side, partial(measure_run, rows, side, where, seconds / 6, *work, *changes))


def ppo_images(rows: Rows, device: str, seconds: float) -> None:
    """Env steps/s of PPO on 84 × 84 images, with the convolutions of DQN's paper."""
    work = (
        *("policy=ppo", "env.id=tests.gpu.environments:Blocks", "experiment=none", "policy.minibatches=4"),
        *("policy.passes=4", "workers.envs_per_worker=16", "workers.fragment_length=64"),
    )
    for side, where, changes in (
        ("learner on the device", device, ()),
        ("learner and acting on the device", device, ("workers.act_on=learner",)),
        (
            "learner and acting on the device, bf16-mixed",
            device,
            ("workers.act_on=learner", "trainer.precision=bf16-mixed"),
        ),
    ):
        attempt(rows, side, partial(measure_run, rows, side, where, seconds / 7, *work, *changes))


def measure_run(rows: Rows, side: str, device: str, seconds: float, *overrides: str) -> None:
    """Train for some seconds; env steps/s after the first iteration, and the share of time that learning takes."""
    from lightning.pytorch import Callback

    from lightning_rl.config import check_config, compose_config
    from lightning_rl.runs import run

    class Clock(Callback):
        began = steps = learning = 0.0
        speed = 0.0

        def on_train_batch_end(self, trainer: Any, pl_module: Any, *others: Any) -> None:
            now = time.perf_counter()
            if not self.began:
                self.began, self.steps = now, pl_module.env_steps
                return
            self.learning += pl_module.learn_seconds
            passed = now - self.began
            self.speed, self.share = (pl_module.env_steps - self.steps) / passed, self.learning / passed
            trainer.should_stop = passed > seconds

    place = "cpu" if device == "cpu" else "gpu"
    fixed = ("evaluation=none", "logger=none", "trainer.enable_progress_bar=false", f"trainer.accelerator={place}")
    with tempfile.TemporaryDirectory() as directory:
        config = compose_config([*overrides, *fixed, f"run_dir={directory}", "total_env_steps=100_000_000"])
        config["stop"]["return"] = None
        check_config(config)
        policy, data, trainer = run.build(config)
        trainer.callbacks.append(clock := Clock())
        run.fit(policy, data, trainer)
    rows.add(side=side, value=round(clock.speed), unit=f"env steps/s ({clock.share:.0%} of the time learning)")


# -- benchmark: gradient steps ----------------------------------------------------------------------------------------
BATCH, AT_ONCE, OBS, ACTIONS = 256, 16, 17, 6  # sizes of HalfCheetah; rows of 16 steps are drawn together


def dqn(rows: Rows, device: str, seconds: float) -> None:
    """Gradient steps/s of DQN, 2 × 256, batch 256."""
    compare_updates(rows, device, seconds, discrete=True)


def sac(rows: Rows, device: str, seconds: float) -> None:
    """Gradient steps/s of SAC, 2 × 256, batch 256."""
    compare_updates(rows, device, seconds, discrete=False)


def compare_updates(rows: Rows, device: str, seconds: float, *, discrete: bool) -> None:
    """Updates of this package, eager and compiled, and of a bare loop, from rows in the host's memory.

    Each draws rows from a replay buffer (the bare loop from plain arrays) and copies them to the device.
    """
    import torch

    share = seconds / 9
    _, buffer = replayed_policy(discrete)

    def ours(side: str, mode: str | None) -> None:
        policy, _ = replayed_policy(discrete)
        for network in policy.to(device).children() if mode else ():
            if next(network.parameters(), None) is not None:
                network.compile(mode=mode)
        if mode == "reduce-overhead":  # as the callback CompileNetworks does
            loss, mark = policy.loss, torch.compiler.cudagraph_mark_step_begin
            policy.loss = lambda batch: (mark(), loss(batch))[1]
        time_updates(rows, side, policy, buffer, device, share)

    modes = {"eager": None, "compiled": "default", "compiled, CUDA graphs": "reduce-overhead"}
    for how, mode in modes.items():
        if device == "cuda" or mode != "reduce-overhead":
            attempt(rows, f"lightning_rl, {how}", partial(ours, f"lightning_rl, {how}", mode))
        if mode != "reduce-overhead":
            side = f"bare torch loop, {how}"
            attempt(rows, side, partial(time_bare, rows, side, device, share, discrete, compiled=mode is not None))


def replayed_policy(discrete: bool) -> tuple[Any, Any]:
    """A policy and a replay buffer of random experience."""
    import gymnasium as gym
    import numpy as np

    from lightning_rl.envs import EnvCreator
    from lightning_rl.policies import DQN, SAC
    from lightning_rl.replay.buffer import ReplayBuffer
    from lightning_rl.rollouts import RolloutWorker
    from tests.feature_matrix import AnySpaces

    obs = gym.spaces.Box(-1, 1, (OBS,), np.float32)
    actions = gym.spaces.Discrete(ACTIONS) if discrete else gym.spaces.Box(-1, 1, (ACTIONS,), np.float32)
    model = {"fcnet_hiddens": [256, 256], "fcnet_activation": "relu"}
    policy = (DQN if discrete else SAC)(obs, actions, model=model)
    env = EnvCreator(AnySpaces, {"observation_space": obs, "action_space": actions}, check=False)
    worker = RolloutWorker(env, policy, num_envs=4, vectorization="sync", fragment_length=512)
    buffer = ReplayBuffer(16_384, gamma=policy.gamma)
    while len(buffer) < AT_ONCE * BATCH:
        buffer.add(worker.sample())
    return policy, buffer


def time_updates(rows: Rows, side: str, policy: Any, buffer: Any, device: str, seconds: float) -> None:
    """Gradient steps/s of a policy, as its iteration takes them from a replay buffer."""
    import numpy as np

    from lightning_rl.data.draws import Draw

    generator = np.random.default_rng(0)

    class Draws:
        def __iter__(self) -> Iterator[Any]:
            for _ in range(8):
                yield Draw(buffer.sample(AT_ONCE * BATCH, generator).to(device), AT_ONCE)

        def update_priorities(self, batch: Any) -> None:
            """Uniform draws have none."""

    def iteration() -> int:
        policy.learner.update(Draws())
        return 8 * AT_ONCE

    rows.add(side=side, value=steps_per_second(iteration, seconds), unit="gradient steps/s")


def attempt(rows: Rows, side: str, measure: Callable[[], None]) -> None:
    """Measure a side; one that fails is a failed row, and the others are measured all the same."""
    try:
        measure()
    except Exception as error:
        traceback.print_exc()
        rows.add(test=side, outcome="failed", why=f"{type(error).__name__}: {str(error).strip().splitlines()[0][:300]}")


def steps_per_second(iteration: Any, seconds: float) -> int:
    """Steps a second, after two iterations that count for nothing; an iteration waits for its results."""
    iteration(), iteration()
    began, steps = time.perf_counter(), 0
    while (passed := time.perf_counter() - began) < seconds:
        steps += iteration()
    return round(steps / passed)


def time_bare(rows: Rows, side: str, device: str, seconds: float, discrete: bool, compiled: bool) -> None:
    """Gradient steps/s of the same algorithm in plain torch."""
    import numpy as np
    import torch

    numbers = np.random.default_rng(0)
    shape = (4096,) if discrete else (4096, ACTIONS)
    actions = numbers.integers(ACTIONS, size=shape) if discrete else numbers.uniform(-1, 1, shape).astype(np.float32)
    obs, following = (numbers.standard_normal((4096, OBS), np.float32) for _ in range(2))
    columns = (obs, actions, numbers.standard_normal(4096, np.float32), following, numbers.random(4096) < 0.1)
    update = (bare_dqn if discrete else bare_sac)(device, compiled)

    def iteration() -> int:
        for _ in range(8):
            chosen = numbers.integers(4096, size=AT_ONCE * BATCH)
            drawn = [torch.from_numpy(column[chosen]) for column in columns]
            if device == "cuda":
                drawn = [column.pin_memory().to(device, non_blocking=True) for column in drawn]
            for part in zip(*(column.split(BATCH) for column in drawn), strict=True):
                loss = update(*part)
        loss.item()
        return 8 * AT_ONCE

    rows.add(side=side, value=steps_per_second(iteration, seconds), unit="gradient steps/s")


def mlp(inputs: int, outputs: int) -> Any:
    """2 × 256 with ReLU."""
    from torch import nn

    return nn.Sequential(
        nn.Linear(inputs, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, outputs)
    )  # fmt: skip


def bare_dqn(device: str, compiled: bool) -> Any:
    """One gradient step of double DQN."""
    import torch
    import torch.nn.functional as F

    net, target = mlp(OBS, ACTIONS).to(device), mlp(OBS, ACTIONS).to(device).requires_grad_(False)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
    if compiled:
        net.compile(), target.compile()

    def update(obs: Any, actions: Any, rewards: Any, following: Any, terminated: Any) -> Any:
        with torch.no_grad():
            best = net(following).argmax(1, keepdim=True)
            targets = rewards + 0.99 * ~terminated * target(following).gather(1, best).squeeze(1)
        loss = F.smooth_l1_loss(net(obs).gather(1, actions.unsqueeze(1)).squeeze(1), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return update


def bare_sac(device: str, compiled: bool) -> Any:
    """One gradient step of SAC: two critics, their targets, the actor and the temperature."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    actor = mlp(OBS, 2 * ACTIONS).to(device)
    critics, targets = (nn.ModuleList(mlp(OBS + ACTIONS, 1) for _ in range(2)).to(device) for _ in range(2))
    targets.requires_grad_(False)
    log_alpha = torch.zeros((), device=device, requires_grad=True)
    optimizers = [
        torch.optim.Adam(parameters, lr=3e-4, fused=True)
        for parameters in (critics.parameters(), actor.parameters(), [log_alpha])
    ]
    if compiled:
        for net in (actor, *critics, *targets):
            net.compile()

    def act(obs: Any) -> tuple[Any, Any]:
        mean, log_std = actor(obs).chunk(2, 1)
        dist = torch.distributions.Normal(mean, log_std.clamp(-20, 2).exp(), validate_args=False)
        raw = dist.rsample()
        correction = 2 * (0.6931472 - raw - F.softplus(-2 * raw))
        return raw.tanh(), (dist.log_prob(raw) - correction).sum(1)

    def values(nets: Any, obs: Any, actions: Any) -> Any:
        inputs = torch.cat([obs, actions], 1)
        return torch.stack([net(inputs).squeeze(1) for net in nets])

    def step(optimizer: Any, loss: Any) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def update(obs: Any, actions: Any, rewards: Any, following: Any, terminated: Any) -> Any:
        with torch.no_grad():
            alpha = log_alpha.exp()
            next_actions, next_logp = act(following)
            best = values(targets, following, next_actions).amin(0) - alpha * next_logp
            wanted = rewards + 0.99 * ~terminated * best
        loss = (values(critics, obs, actions) - wanted).square().mean(1).sum()
        step(optimizers[0], loss)
        critics.requires_grad_(False)
        new, logp = act(obs)
        step(optimizers[1], (alpha * logp - values(critics, obs, new).amin(0)).mean())
        critics.requires_grad_(True)
        step(optimizers[2], -(log_alpha * (logp.detach() - ACTIONS)).mean())
        with torch.no_grad():
            torch._foreach_lerp_(list(targets.parameters()), list(critics.parameters()), 0.005)
        return loss.detach()

    return update


# -- the command ------------------------------------------------------------------------------------------------------
def main() -> int:
    """Collect wheels, run a part, or run all parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path, metavar="DIR", help="download wheels into DIR, and do nothing else")
    python = ".".join(platform.python_version_tuple()[:2])
    parser.add_argument("--python", default=python, help=f"the Python version of those wheels (default: {python})")
    parser.add_argument("--from", dest="source", type=Path, metavar="DIR", help="install from these wheels first")
    parser.add_argument("--site", type=Path, help="install into this folder (default: a temporary one)")
    parser.add_argument("--out", type=Path, default=Path("gpu_check"), help="folder of the results")
    parser.add_argument("--cpu", action="store_true", help="try it on the CPU")
    parser.add_argument(
        "--total",
        type=float,
        default=TOTAL,
        help=f"seconds for everything (default: {TOTAL}); more of them lengthen each part's limit",
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=[*PARTS], help="parts to run")
    for hidden in ("--part", "--device", "--rows", "--seconds"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.wheels:
        collect_wheels(args.wheels, args.python)
        return 0
    if args.part:
        globals()[args.part](Rows(Path(args.rows)), args.device, float(args.seconds))
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        site = (args.site or Path(temporary)).resolve()
        if args.source:
            install_wheels(args.source, site)
        path = os.pathsep.join(filter(None, [str(site), str(ROOT), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": path}
        return 0 if run_parts(args.only, args.out, "cpu" if args.cpu else "cuda", environment, args.total) else 1


if __name__ == "__main__":
    sys.exit(main())
