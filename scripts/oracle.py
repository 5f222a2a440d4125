"""What runs end with, bit for bit, before and after a change that should not change what is learned.

    python scripts/oracle.py record before.json --root ../before     # of another checkout
    python scripts/oracle.py record after.json                       # of this one
    python scripts/oracle.py compare before.json after.json
    python scripts/oracle.py record before.json --cases config help   # configs of all runs, and what the commands say

Each case trains straight through and once more from a checkpoint of the middle. Recorded are digests of the weights,
of the optimizer, of everything else in the last checkpoint that is an array (replay, environments, filters), and of
the metrics without times. Names in a checkpoint do not count: only which arrays there are. Digests hold on one machine
and one version of PyTorch. The cases "config" and "help" are kept as texts: the configs that the other cases compose,
and the help of all verbs, the lists of all choices and the descriptions of their keys.
"""

from __future__ import annotations

import argparse
import csv
import difflib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent
LISTS = ("policies", "envs", "experiments", "models", "explorations", "data", "loggers", "metrics")
DESCRIBED = {"policies": "policy", "models": "model", "explorations": "exploration", "data": "data"}
TIMES = ("time/", "sys/", "eval/share")
COMMON = """experiment=none evaluation.episodes=1 evaluation.max_share=null evaluation.every_env_steps=128
    checkpoint.keep=20 checkpoint.every_env_steps=128 total_env_steps=256 workers.logical_workers=2 seed=3
    trainer.enable_progress_bar=false"""
ROLLOUTS = "workers.envs_per_worker=2 workers.fragment_length=16"
REPLAY = """workers.fragment_length=8 data.capacity=100 data.batch_size=8 data.learning_starts=24
    model.fcnet_hiddens=[16]"""
GROUP = "env=two_step_game model.lstm_cell_size=8 data.batch_size=8 data.learning_starts=24"
CARTPOLES = f"env.id=CartPole-v1 env.agents=3 env.max_episode_steps=20 {ROLLOUTS}"
CASES = {
    "ppo": f"policy=ppo env=pendulum policy.observation_filter=mean_std policy.lr=[[0,1e-3],[256,0.0]] {ROLLOUTS}",
    "ppo lstm": f"policy=ppo env=stateless_cartpole model=lstm model.lstm_cell_size=8 {ROLLOUTS}",
    "a2c": f"policy=a2c env=cartpole {ROLLOUTS}",
    "impala": f"policy=impala env=cartpole data.order=fixed data.replay_proportion=1.0 policy.minibatches=1 {ROLLOUTS}",
    "appo": f"policy=appo env=cartpole data.order=fixed policy.kl_coef=0.5 policy.minibatches=1 {ROLLOUTS}",
    "a3c": f"policy=a3c env=cartpole data.gradients_per_iteration=2 {ROLLOUTS}",
    "es": """policy=es env=cartpole env.max_episode_steps=20 data.directions=2 data.eval_prob=0.5
        model.fcnet_hiddens=[8]""",
    "dqn": f"policy=dqn env=cartpole data.update_to_data_ratio=0.3 policy.target_update_interval=7 {REPLAY}",
    "rainbow": f"policy=rainbow env=cartpole policy.num_atoms=5 data.n_step=3 {REPLAY}",
    "sac": f"policy=sac env=pendulum policy.reward_filter=return_std {REPLAY}",
    "td3": f"policy=td3 env=pendulum data.n_step=2 {REPLAY}",
    "hindsight": f"policy=sac env=point_reach data=hindsight exploration=gsde data.n_step=2 {REPLAY}",
    "r2d2": f"""policy=r2d2 env=stateless_cartpole data.capacity=100 data.batch_size=4 data.learning_starts=40
        model.lstm_cell_size=8 data.sequence_length=4 data.sequence_stride=2 data.burn_in=2 {ROLLOUTS}""",
    "rnd": f"policy=ppo env=cartpole exploration=rnd policy.minibatches=1 {ROLLOUTS}",
    "agents: ppo": f"policy=ppo policy.observation_filter=mean_std {CARTPOLES}",
    "agents: dqn": f"policy=dqn data.learning_starts=64 {CARTPOLES}",
    "agents: a3c": f"policy=a3c data.gradients_per_iteration=2 {CARTPOLES}",
    "agents: impala": f"policy=impala data.order=fixed policy.minibatches=1 {CARTPOLES}",
    "agents: two policies": f"""{CARTPOLES} policy_mapping={{agent_0:a,*:b}}
        policies={{a:{{policy:ppo,model:{{fcnet_hiddens:[8]}}}},b:{{policy:dqn,data:{{learning_starts:64}}}}}}""",
    "agents: turns": f"policy=ppo env=connect_four model=default {ROLLOUTS}",
    "agents: maddpg": f"policy=maddpg env=simple_speaker_listener {REPLAY}",
    "agents: independent q": f"policy=independent_q {GROUP}",
    "agents: qmix": f"policy=qmix data.sequence_length=2 data.sequence_stride=2 {GROUP}",
    "agents: vdn": f"policy=vdn data.sequence_length=2 data.sequence_stride=2 {GROUP}",
}


def arrays(tree: Any) -> Iterator[bytes]:
    """The bytes of every array in nested containers, each with its shape."""
    if isinstance(tree, torch.Tensor):
        tree = tree.detach().cpu().numpy()
    if isinstance(tree, np.ndarray):
        yield f"{tree.dtype}{tree.shape}".encode() + tree.tobytes()
    elif isinstance(tree, Mapping):
        for value in tree.values():
            yield from arrays(value)
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from arrays(value)


def digest(parts: Iterator[bytes]) -> str:
    """One digest of parts in any order."""
    each = sorted(hashlib.sha256(part).hexdigest() for part in parts)
    return hashlib.sha256("".join(each).encode()).hexdigest()[:16]


def digests(run_dir: Path) -> dict[str, str]:
    """What a run ended with."""
    checkpoint = torch.load(run_dir / "checkpoints" / "last.ckpt", weights_only=True)
    weights, optimizers = checkpoint.pop("state_dict"), checkpoint.pop("optimizer_states")
    with (run_dir / "metrics.csv").open() as file:
        rows = [sorted(item for item in row.items() if item[1]) for row in csv.DictReader(file)]
    kept = [[item for item in row if not item[0].startswith(TIMES)] for row in rows]
    return {
        "weights": digest(arrays(weights)),
        "optimizer": digest(arrays(optimizers)),
        "data": digest(arrays(checkpoint)),
        "metrics": hashlib.sha256(json.dumps(kept).encode()).hexdigest()[:16],
    }


def command(root: Path, folder: str, *words: str) -> str:
    """What the command line of a checkout says."""
    environ = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    whole = (sys.executable, "-m", "lightning_rl", *words)
    return subprocess.run(whole, cwd=folder, env=environ, check=True, stdout=subprocess.PIPE, text=True).stdout


def configs(root: Path) -> dict[str, str]:
    """The config of each case, as YAML."""
    program = """if True:
        import json, sys, yaml
        from lightning_rl.config import compose_config
        cases = json.loads(sys.argv[1])
        print(json.dumps({case: yaml.safe_dump(compose_config(words)) for case, words in cases.items()}))"""
    cases = {case: [*COMMON.split(), *overrides.split(), "run_dir=run"] for case, overrides in CASES.items()}
    environ = {**os.environ, "PYTHONPATH": str(root)}
    words = (sys.executable, "-c", program, json.dumps(cases))
    return json.loads(
        subprocess.run(words, cwd=root, env=environ, check=True, stdout=subprocess.PIPE, text=True).stdout
    )


def helps(root: Path) -> dict[str, str]:
    """What the command line says of itself, of all choices and of all keys."""
    with tempfile.TemporaryDirectory(prefix="oracle_") as folder:
        found = {"--help": command(root, folder, "--help")}
        for verb in (line.split()[0] for line in found["--help"].splitlines() if line.startswith("  ")):
            found[f"{verb} --help"] = command(root, folder, verb, "--help")
        for section in ("stop", "env", "workers", "evaluation", "checkpoint", "trainer"):
            found[f"describe {section}"] = command(root, folder, "describe", section)
        for kind in LISTS:
            found[f"list {kind}"] = command(root, folder, "list", kind)
            for line in found[f"list {kind}"].splitlines() if kind in DESCRIBED else ():
                if line.startswith("  ") and line[2] != " ":
                    choice = f"{DESCRIBED[kind]}={line.split()[0]}"
                    found[f"describe {choice}"] = command(root, folder, "describe", choice)
        return found


def record(root: Path, overrides: str) -> dict[str, dict[str, str]]:
    """The digests of a run without a stop, and of its copy that continued from the middle."""
    with tempfile.TemporaryDirectory(prefix="oracle_") as folder:
        whole, again = Path(folder, "whole"), Path(folder, "again")
        command(root, folder, "train", f"run_dir={whole}", "logger=csv", *COMMON.split(), *overrides.split())
        shutil.copytree(whole, again, ignore=shutil.ignore_patterns("status.json", "last.ckpt", "best_*"))
        middle, *later = sorted((again / "checkpoints").glob("step_*.ckpt"))
        for file in later:
            file.unlink()
        command(root, folder, "resume", str(again), "--checkpoint", str(middle))
        return {"straight": digests(whole), "resumed": digests(again)}


TEXTS: dict[str, Callable[[Path], dict[str, str]]] = {"config": configs, "help": helps}


def main() -> int:
    """Returns 1 if something differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    recorder = verbs.add_parser("record")
    recorder.add_argument("file", type=Path)
    recorder.add_argument("--root", type=Path, default=ROOT, help="the checkout that trains")
    every = [*CASES, *TEXTS]
    recorder.add_argument("--cases", nargs="*", default=every, choices=every, metavar="CASE")
    comparer = verbs.add_parser("compare")
    comparer.add_argument("before", type=Path)
    comparer.add_argument("after", type=Path)
    given = parser.parse_args()
    if given.verb == "record":
        recorded = json.loads(given.file.read_text()) if given.file.exists() else {}
        for case in given.cases:
            if case in TEXTS:
                recorded[case] = TEXTS[case](given.root.resolve())
                given.file.write_text(json.dumps(recorded, indent=1))
                continue
            recorded[case] = record(given.root.resolve(), CASES[case])
            same = "" if recorded[case]["straight"] == recorded[case]["resumed"] else "  (its resume differs)"
            print(f"{case}{same}", flush=True)
            given.file.write_text(json.dumps(recorded, indent=1))
        return 0
    before, after = (json.loads(path.read_text()) for path in (given.before, given.after))
    differ = sorted(
        f"{case}, {way}: {part}"
        for case in (before.keys() | after.keys()) - TEXTS.keys()
        for way in ("straight", "resumed")
        for part in ("weights", "optimizer", "data", "metrics")
        if before.get(case, {}).get(way, {}).get(part) != after.get(case, {}).get(way, {}).get(part)
    )
    for case in TEXTS:
        old, new = before.get(case, {}), after.get(case, {})
        for name in sorted(old.keys() | new.keys()):
            lines = [text.get(name, "").splitlines() for text in (old, new)]
            differ += difflib.unified_diff(*lines, f"{case}: {name}, before", "after", n=0, lineterm="")
    print("\n".join(differ) or f"{len(before)} cases, no difference")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
