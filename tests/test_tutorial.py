"""The tutorial's commands and files, one after the other in an empty directory, as its reader types them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"(?:^`([\w/]+\.py)`[^\n]*:\n\n)?^```(bash|python)\n(.*?)^```", re.DOTALL | re.MULTILINE)
SHORT = 3000  # env steps of a training command that names no number, and the most of one that does


def program_of(command: str) -> list[str]:
    """A command as this interpreter runs it, with fewer env steps."""
    words = shlex.split(command)
    if words[0] == "tensorboard":  # the server would never end; this reads the same files
        return [sys.executable, "-m", "tensorboard.main", "--inspect", *words[1:]]
    if words[0] == "lightning-rl":
        return [sys.executable, "-m", "lightning_rl", *words[1:]]
    if words[0] != "python":
        return words
    assert words[1] == "train.py"
    steps = [] if "total_env_steps" in command else [f"total_env_steps={SHORT}"]
    return [sys.executable, str(ROOT / "train.py"), *words[2:], *steps]


def check_install(command: str) -> None:
    """What `pip install` names is there: extras in pyproject.toml, and the file of versions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {name for found in re.findall(r"\[([\w,]+)\]", command) for name in found.split(",")}
    assert extras <= set(project["optional-dependencies"])
    assert all((ROOT / file).is_file() for file in re.findall(r"-c (\S+)", command))


@pytest.mark.slow
def test_every_command_and_block_runs(tmp_path: Path) -> None:
    blocks = BLOCK.findall(TUTORIAL)
    assert len(blocks) == TUTORIAL.count("```") // 2
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    outputs: dict[str, str] = {}
    for file, language, text in blocks:
        if file:
            (tmp_path / file).write_text(text, encoding="utf-8")
            continue
        commands = text.splitlines() if language == "bash" else [text]
        for command in commands:
            if command.startswith("pip install"):
                check_install(command)
                continue
            words = program_of(command) if language == "bash" else [sys.executable, "-c", command]
            result = subprocess.run(
                words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False
            )
            assert result.returncode == 0, (command, result.stderr)
            outputs[command] = result.stdout + result.stderr
    assert "rollout/ep_rew_mean" in outputs["tensorboard --logdir runs"]
    table = TUTORIAL.split("| in the run's")[1].split("\n\n")[0]
    files = {path.name for path in (tmp_path / "runs" / "first").iterdir()}
    assert set(re.findall(r"`([\w.]+)(?:/`|`)", table)) - {"last.ckpt"} <= files
    header, *_, last = (tmp_path / "runs" / "own" / "metrics.csv").read_text(encoding="utf-8").splitlines()
    assert {"train/model/reconstruction_error", "train/approx_kl", "train/explained_variance"} <= set(header.split(","))
    assert int(float(last.split(",")[0])) >= 30_000
    corridor = next(text for command, text in outputs.items() if "evaluate runs/own" in command)
    assert "return 0.65 ± 0.00" in corridor
    (sweep,) = tmp_path.rglob("sweep.csv")
    assert len(sweep.read_text(encoding="utf-8").splitlines()) == 3  # a heading and two policies
