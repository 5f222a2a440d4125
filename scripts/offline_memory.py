"""Memory of offline learning from data that do not fit into it, which are hard links to one shard.

    nice -n 19 python scripts/offline_memory.py --gigabytes 20 --dir /tmp --policies td3_bc bc

Every policy learns in a process of its own from a memory-mapped copy, which is gone when the process ends: the disk has
to hold the data once. Anonymous memory is what no file backs. Pages of the copy are not part of it; the system drops
them when it needs their room.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from lightning_rl.config import check_config, compose_config
from lightning_rl.data.offline.shards import write_shard
from lightning_rl.data.offline.steps import DataSpec, close_episodes
from lightning_rl.runs import run

OBS, ACTIONS, STEPS, EPISODE = 376, 17, 20_000, 1000  # as of MuJoCo's Humanoid; steps of a shard and of an episode
ROW_BYTES = 4 * (OBS + ACTIONS + 1) + 2
RUN = ["env=none", "experiment=none", "data=offline", "logger=none", "torch_threads=1", "evaluation.every_env_steps=0"]
LENGTH = {"bc": 200_000}  # transitions read; of replay algorithms, gradient steps
GRADIENT_STEPS = 1000


def anonymous_mb() -> float:
    """Memory of this process that no file backs, MiB."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) / 1024


def write_links(directory: Path, gigabytes: float) -> None:
    """Write one shard and links to it."""
    rng, last = np.random.default_rng(0), np.arange(EPISODE - 1, STEPS, EPISODE)
    columns = {
        # Repeated rows compress well, so that reading is fast; they need the same memory.
        ("obs",): rng.normal(size=(STEPS // 100, OBS)).astype(np.float32).repeat(100, 0),
        ("actions",): rng.uniform(-1, 1, (STEPS, ACTIONS)).astype(np.float32),
        ("rewards",): rng.normal(size=STEPS).astype(np.float32),
        ("terminated",): np.isin(np.arange(STEPS), last),
        ("truncated",): np.zeros(STEPS, bool),
    }
    spec = DataSpec(spaces.Box(-np.inf, np.inf, (OBS,)), spaces.Box(-1, 1, (ACTIONS,)))
    shard = write_shard(directory, "a00000", close_episodes(columns, last, None), spec)
    for number in range(1, round(gigabytes * 1e9 / (STEPS * ROW_BYTES))):
        shard.with_name(shard.name.replace("a00000", f"a{number:05}")).hardlink_to(shard)


def learn(policy: str, data: Path, copy: Path) -> None:
    """Learn from the data, and print what it took."""
    total = LENGTH.get(policy, GRADIENT_STEPS)
    keys = [f"policy={policy}", f"data.input={data}", f"data.storage={copy}", f"total_env_steps={total}"]
    config = compose_config([*RUN, *keys, f"run_dir={copy / 'run'}"])
    check_config(config)
    module, datamodule, trainer = run.build(config)
    before, peak, over, started = anonymous_mb(), [0.0], threading.Event(), time.perf_counter()

    def watch() -> None:
        while not over.wait(0.02):
            peak[0] = max(peak[0], anonymous_mb())

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    source: Any = datamodule.source
    datamodule.trainer = trainer
    source.prepare(module)
    read, filled = time.perf_counter() - started, peak[0]
    peak[0] = 0.0
    run.fit(module, datamodule, trainer)
    over.set()
    watcher.join()
    print(
        f"{policy}: {source.steps:,} steps, {source.buffer.nbytes / 1e9:.1f} GB; anonymous memory {before:.0f} MiB "
        f"before, at most {filled:.0f} while reading ({read:.0f} s) and {peak[0]:.0f} while learning "
        f"({module.gradient_steps:,} gradient steps, {time.perf_counter() - started - read:.0f} s)",
        flush=True,
    )


def main() -> None:
    """Write the links, and learn from them with each policy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=20.0, help="of the data, uncompressed")
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()), help="a directory on a large disk")
    parser.add_argument("--policies", nargs="+", default=["td3_bc", "bc"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.dir) as directory:
        write_links(Path(directory) / "data", options.gigabytes)
        for policy in options.policies:
            places = (policy, Path(directory) / "data", Path(directory) / policy)
            process = multiprocessing.get_context("spawn").Process(target=learn, args=places)
            process.start()
            process.join()
            if process.exitcode:
                raise SystemExit(process.exitcode)


if __name__ == "__main__":
    main()
