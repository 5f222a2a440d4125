"""Examines this machine: packages, threads, memory, devices, rendering, Ray, and the disk of runs."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from lightning_rl.diagnosis.findings import Finding
from lightning_rl.diagnosis.packages import NOT_INSTALLED, examine_extras, examine_packages
from lightning_rl.errors import MUJOCO_ADVICE
from lightning_rl.run_directory.atomic import nearest_existing, why_not_writable

__all__ = ["examine_machine"]

GIB = 2**30
ENOUGH_MEMORY, LEAST_MEMORY = 4 * GIB, 1 * GIB  # a run with two worker processes occupies about 1.5 GiB
ENOUGH_DISK, LEAST_DISK = 2 * GIB, 0.1 * GIB  # a run with default networks and three checkpoints has about 5 MB
CGROUP = Path("/sys/fs/cgroup")
RENDERING_S, RAY_S = 60, 120  # time limits of the processes that try these

RENDER = """
import gymnasium
env = gymnasium.make("{env}", render_mode="rgb_array")
env.reset(seed=0)
print(*env.render().shape, sep="×")
"""
RAY = """
from lightning_rl.rollouts.ray.session import start_ray, stop_ray
start_ray(1)
stop_ray()
"""


def examine_machine(run_dir: Path = Path("runs"), *, full: bool = False) -> list[Finding]:
    """Everything that a run needs of a machine.

    Args:
        run_dir: where runs will be written; it need not exist.
        full: also start a Ray session, which takes some seconds.
    """
    findings = [*examine_packages(), *examine_extras()]
    if any(finding.level == "bad" and finding.text == NOT_INSTALLED for finding in findings):
        return findings  # what follows imports these packages
    return [
        *findings,
        *examine_threads(),
        examine_memory(),
        *examine_devices(),
        *examine_rendering(),
        *examine_ray(full),
        *examine_directory(run_dir),
    ]


def examine_threads() -> list[Finding]:
    """Cores that this process may use, and the threads that torch and OpenMP would start."""
    import torch

    cores = usable_cores()
    named = os.environ.get("OMP_NUM_THREADS")
    limit = "" if cores == os.cpu_count() else f" of {os.cpu_count()} (a container or an affinity limits them)"
    findings = [Finding("cores", "ok", f"{cores:g} usable{limit}")]
    threads = torch.get_num_threads()
    text = f"torch {threads}, OMP_NUM_THREADS={named or '(unset)'}; a run sets torch_threads=1 itself"
    if threads > max(1, cores):
        fix = f"export OMP_NUM_THREADS={max(1, int(cores))}: more threads than cores wait for each other"
        return [*findings, Finding("threads", "warn", text, fix)]
    return [*findings, Finding("threads", "ok", text)]


def usable_cores(cgroup: Path = CGROUP) -> float:
    """Cores that this process may use, within its affinity and the limit of its container."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    file = cgroup / "cpu.max"
    quota, _, period = file.read_text().strip().partition(" ") if file.is_file() else ("max", "", "")
    return min(float(count), int(quota) / int(period)) if quota.isdigit() and period.isdigit() else float(count)


def examine_memory() -> Finding:
    """Free memory, within the limit of a container."""
    from lightning_rl.replay.storage import available_bytes

    free = available_bytes()
    text = f"{free / GIB:.1f} GiB free"
    if free >= ENOUGH_MEMORY:
        return Finding("memory", "ok", text)
    fix = "end other programs, or lower workers.num_workers, workers.envs_per_worker and data.capacity"
    return Finding("memory", "warn" if free >= LEAST_MEMORY else "bad", text, fix)


def examine_devices() -> list[Finding]:
    """GPUs that torch can use, and one that it cannot use."""
    import torch

    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        return [Finding("GPU", "ok", f"CUDA {torch.version.cuda}: {', '.join(names)}")]
    if torch.backends.mps.is_available():
        return [Finding("GPU", "ok", "MPS (Apple): trainer.accelerator=mps")]
    if shutil.which("nvidia-smi") is not None:
        built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "a CPU build"
        fix = "install the build of torch for your driver: https://pytorch.org/get-started/locally"
        return [Finding("GPU", "warn", f"nvidia-smi is there, and torch {torch.__version__} ({built}) sees none", fix)]
    return [Finding("GPU", "ok", "none: runs use the CPU, which is faster for small networks")]


def examine_rendering() -> list[Finding]:
    """Whether an environment gives pictures, and whether there is a display for a window."""
    fix = 'pip install "gymnasium[classic-control]" (pygame); without a display also export SDL_VIDEODRIVER=dummy'
    pictures = [try_pictures("CartPole-v1", fix)]
    if importlib.util.find_spec("mujoco") is not None:
        pictures.append(try_pictures("InvertedPendulum-v5", MUJOCO_ADVICE))
    display = next((name for name in ("DISPLAY", "WAYLAND_DISPLAY") if os.environ.get(name)), None)
    if display is None and sys.platform not in ("darwin", "win32"):
        return [*pictures, Finding("display", "ok", "none: windows cannot open here, pictures and videos can be made")]
    return [*pictures, Finding("display", "ok", f"{display}={os.environ[display]}" if display else sys.platform)]


def try_pictures(env: str, fix: str) -> Finding:
    """Whether an environment of Gymnasium gives pictures.

    Args:
        env: its id.
        fix: if it does not.
    """
    shape, failure = try_program(RENDER.format(env=env), RENDERING_S)
    if failure:
        return Finding("pictures", "warn", f"rgb_array of {env} does not work: {failure}", fix)
    return Finding("pictures", "ok", f"rgb_array of {env} works: {shape}")


def examine_ray(full: bool) -> list[Finding]:
    """Whether Ray can be imported, and with `full` whether a session starts."""
    if not full:
        return [Finding("Ray session", "ok", "not tried: --full starts one")]
    _, failure = try_program(RAY, RAY_S)
    if not failure:
        return [Finding("Ray session", "ok", "starts and ends")]
    fix = "look into /tmp/ray/session_latest/logs; runs with workers.num_workers=0 need no Ray"
    return [Finding("Ray session", "bad", f"does not start: {failure}", fix)]


def try_program(code: str, timeout: float) -> tuple[str, str]:
    """Run a program in its own process, which may crash without harm.

    Args:
        code: Python.
        timeout: seconds.

    Returns:
        The last line that it printed, and why it failed; "" if it did not.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", code]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return "", f"it takes longer than {timeout:g} s"
    text = done.stderr if done.returncode else done.stdout
    last_line = (text.strip().splitlines() or ["no message"])[-1]
    return ("", last_line) if done.returncode else (last_line, "")


def examine_directory(run_dir: Path) -> list[Finding]:
    """Whether runs can be written there, and how much room there is."""
    if why := why_not_writable(run_dir):
        return [Finding("run directory", "bad", f"{run_dir}: {why}", "choose another run_dir, or change its owner")]
    free = shutil.disk_usage(nearest_existing(run_dir.absolute())).free
    text = f"{run_dir}: can be written to, {free / GIB:.1f} GiB free"
    if free >= ENOUGH_DISK:
        return [Finding("run directory", "ok", text)]
    fix = "free some space there, or give run_dir=… on another disk; checkpoint.keep=1 keeps fewer files"
    return [Finding("run directory", "warn" if free >= LEAST_DISK else "bad", text, fix)]
