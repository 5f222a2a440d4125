"""An algorithm of EPyMARL with its own values; prints env steps a second, and returns, as JSON.

It runs in EPyMARL's virtual environment, from a checkout of https://github.com/uoe-agents/epymarl:

    VENV/bin/python scripts/peers/epymarl.py --source CHECKOUT --env-steps 20000
    VENV/bin/python scripts/peers/epymarl.py --source CHECKOUT --env-steps 500000 --algorithm qmix \
        --env mpe2_for_epymarl:simple-spread-v3 --time-limit 25 --tests 10
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

COLORS = re.compile(r"\x1b\[[0-9;]*m")
RETURN = re.compile(r"(?<!\w)return_mean:\s+(-?[\d.]+)")  # of training; mean of the last five reports
TEST = re.compile(r"test_return_mean:\s+(-?[\d.]+)")
STEPS = re.compile(r"t_env:\s+(\d+)")


def main() -> None:
    """Train, and time from the first report of steps to the last; start-up is not counted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--algorithm", default="mappo")
    parser.add_argument("--env", default="lbforaging:Foraging-8x8-2p-2f-coop-v3")
    parser.add_argument("--time-limit", type=int, default=50)
    parser.add_argument("--env-steps", type=int, default=20_000)
    parser.add_argument("--tests", type=int, default=0, help="how often it is tested; a test has 100 episodes")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    interval = args.env_steps // args.tests if args.tests else None
    given = {
        "env_args.time_limit": args.time_limit,
        "env_args.key": args.env,
        "t_max": args.env_steps,
        "seed": args.seed,
        "test_interval": interval or 10**9,
        "log_interval": interval or 500,
        "use_cuda": False,
        "save_model": False,
    }
    command = [sys.executable, "src/main.py", f"--config={args.algorithm}", "--env-config=gymma", "with"]
    command += [f"{key}={value}" for key, value in given.items()]
    path = os.pathsep.join(filter(None, [str(Path(__file__).resolve().parent), os.environ.get("PYTHONPATH")]))
    times: list[tuple[float, int]] = []
    tests: list[tuple[int, float]] = []
    mean: float | None = None
    with subprocess.Popen(
        command,
        cwd=args.source,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    ) as running:
        assert running.stdout is not None
        for line in running.stdout:
            text = COLORS.sub("", line)
            if match := STEPS.search(text):
                times.append((time.perf_counter(), int(match[1])))
            if match := RETURN.search(text):
                mean = float(match[1])
            if args.tests and (match := TEST.search(text)):
                tests.append((times[-1][1], float(match[1])))
    if running.returncode or len(times) < 2:
        raise SystemExit(f"EPyMARL ended with {running.returncode} after {len(times)} reports")
    (began, first), (ended, last) = times[0], times[-1]
    numbers = {"env_steps": last, "seconds": ended - began, "steps_per_s": (last - first) / (ended - began)}
    returns = {} if mean is None else {"return": mean}
    print(json.dumps(numbers | returns | ({"test_returns": tests} if args.tests else {})))


if __name__ == "__main__":
    main()
