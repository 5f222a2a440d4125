"""EPyMARL's MAPPO on level-based foraging with its own values; prints env steps a second as JSON.

It runs in EPyMARL's virtual environment, from a checkout of https://github.com/uoe-agents/epymarl:

    VENV/bin/python scripts/peers/epymarl_mappo.py --source CHECKOUT --env-steps 20000
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from pathlib import Path


def main() -> None:
    """Train, and time from the first report of steps to the last; start-up is not counted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--algorithm", default="mappo")
    parser.add_argument("--env-steps", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    given = {
        "env_args.time_limit": 50,
        "env_args.key": "lbforaging:Foraging-8x8-2p-2f-coop-v3",
        "t_max": args.env_steps,
        "seed": args.seed,
        "test_interval": 10**9,
        "log_interval": 500,
        "use_cuda": False,
        "save_model": False,
    }
    command = [sys.executable, "src/main.py", f"--config={args.algorithm}", "--env-config=gymma", "with"]
    command += [f"{key}={value}" for key, value in given.items()]
    seen: list[tuple[float, int]] = []
    with subprocess.Popen(
        command, cwd=args.source, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as running:
        assert running.stdout is not None
        for line in running.stdout:
            if match := re.search(r"t_env:\s+(\d+)", line):
                seen.append((time.perf_counter(), int(match[1])))
    if running.returncode or len(seen) < 2:
        raise SystemExit(f"EPyMARL ended with {running.returncode} after {len(seen)} reports")
    (began, first), (ended, last) = seen[0], seen[-1]
    numbers = {"env_steps": last, "seconds": ended - began, "steps_per_s": (last - first) / (ended - began)}
    print(json.dumps(numbers))


if __name__ == "__main__":
    main()
