"""Tab completes verbs, options, groups, choices, keys and runs, in real shells, without long imports."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lightning_rl.cli import VERBS
from lightning_rl.cli.completion import option_table
from lightning_rl.config.completions import candidates
from lightning_rl.config.compose import compose_config
from lightning_rl.config.groups import GROUPS, group_options
from lightning_rl.config.keys import dotted_keys, value_at
from tests.cli.conftest import Command
from tests.families import each
from tests.shipped_policies import POLICIES

ROOT = Path(__file__).parents[2]
TABLE = {"train": ["--cfg", "--multirun"], "list": ["--json"], "explain": ["--all"], "doctor": []}


def complete(line: str) -> list[str]:
    """Candidates that begin like the last word of a line."""
    words = line.split()
    current = "" if line.endswith(" ") else words.pop()
    return [word for word in candidates(TABLE, words, current) if word.startswith(current)]


def test_each_kind_of_word_is_completed():
    words = {
        "tr": ["train"],
        "train --c": ["--cfg"],
        "train policy=pp": ["policy=ppo"],
        "train -m policy=ppo,dq": ["policy=ppo,dqn"],
        "train env=cartp": ["env=cartpole"],
        "train workers.num_w": ["workers.num_workers="],
        "train policy.model.fcnet_hid": ["policy.model.fcnet_hiddens="],
        "train policy=dqn policy.du": ["policy.dueling="],
        "train policy.du": [],
        "train policy=dqn data.cap": ["data.capacity="],
        "train policy.normalize_actions=": ["policy.normalize_actions=true", "policy.normalize_actions=false"],
        "train exploration=rnd exploration.emb": ["exploration.embed_dim="],
        "train stop.ret": ["stop.return="],
        "explain policy=ppo policy.gae": ["policy.gae_lambda="],
        "list pol": ["policies"],
        "doctor pol": [],
        "nothing pol": [],
    }
    assert {line: complete(line) for line in words} == words


def test_all_groups_and_their_choices_are_those_of_hydra():
    assert {f"{group}=" for group in GROUPS} <= set(complete("train "))
    for group in GROUPS:
        assert complete(f"train {group}=") == [f"{group}={choice}" for choice in group_options(group)]


@pytest.mark.parametrize("policy", each(POLICIES, default=("appo", "dqn", "ppo", "qmix", "sac")))
def test_the_keys_of_an_algorithm_are_those_of_its_config(policy: str):
    config = compose_config([f"policy={policy}", "experiment=none"])
    for section in ("policy", "data", "workers", "model"):
        words = complete(f"train policy={policy} {section}.")
        offered = {word.removeprefix(f"{section}.").rstrip("=.") for word in words}
        assert offered == set(value_at(config, section)) - {"_target_"}
    assert "seed=" in complete("train s") and "seed" in set(dotted_keys(config))


def test_the_users_own_choices_and_runs_are_offered(empty_directory: Path, monkeypatch: pytest.MonkeyPatch):
    (empty_directory / "conf" / "policy").mkdir(parents=True)
    (empty_directory / "conf" / "policy" / "mine.yaml").write_text("defaults: [ppo, _self_]\nown_key: true\n")
    assert complete("train policy=mi") == ["policy=mine"]
    assert complete("train policy=mine policy.ow") == ["policy.own_key="]
    run = empty_directory / "runs" / "2026-01-01" / "one"
    (run / "checkpoints").mkdir(parents=True)
    (run / "config.yaml").write_text("{}")
    assert complete("explain runs/") == ["runs/2026-01-01/one"]
    (empty_directory / "conf" / "policy" / "mine.yaml").write_text("{broken")
    assert complete("train policy=mine seed") == ["seed="]
    monkeypatch.setenv("LIGHTNING_RL_SEARCH_PATH", "nowhere")
    assert complete("train see") == [] and complete("tr") == ["train"]


def test_the_table_holds_every_verb_with_the_options_of_its_help():
    table = dict(entry.partition(" ")[::2] for entry in option_table(VERBS).split(";"))
    assert table.keys() == VERBS.keys()
    assert table["train"].split()[:2] == ["--cfg", "--help"] and "--episodes" in table["evaluate"]
    assert "--help" in table["list"] and "--full" in table["doctor"]


def script(shell: str, command: Command, folder: Path) -> Path:
    file = folder / f"completion.{shell}"
    file.write_text(command("completion", shell).out)
    return file


def answer(*program: str) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([*program], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


BASH = """
source {script}
COMP_LINE='lightning-rl {line}'; COMP_POINT=${{#COMP_LINE}}
COMP_WORDS=($COMP_LINE); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
_lightning_rl
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize(
    ("line", "expected"),
    [("trai", "train"), ("train policy=pp", "ppo"), ("train policy.cli", "policy.clip="), ("train xyz", "")],
)
def test_bash_completes(line: str, expected: str, command: Command, empty_directory: Path):
    """Readline replaces what follows "=", so a choice comes without its group."""
    file = script("bash", command, empty_directory)
    found = answer("bash", "--norc", "-c", BASH.format(script=file, line=line))
    assert (expected in found) if expected else found == []
    assert "complete -o default -F _lightning_rl lightning-rl" in file.read_text()


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes(command: Command, empty_directory: Path):
    file = script("fish", command, empty_directory)
    for line, word in (("train policy=pp", "policy=ppo"), ("train workers.num", "workers.num_workers=")):
        asked = f"source {file}; complete -C 'lightning-rl {line}'"
        assert word in answer("fish", "--no-config", "-c", asked)


ZSH = """
compdef() {{ }}
compadd() {{ while [[ $1 != -- ]]; do shift; done; shift; print -l -- "$@" }}
_files() {{ print files }}
source {script}
LBUFFER='lightning-rl {line}'
_lightning_rl
"""


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
@pytest.mark.parametrize(
    ("line", "expected"), [("trai", "train"), ("train policy=pp", "policy=ppo"), ("train xyz", "files")]
)
def test_zsh_completes(line: str, expected: str, command: Command, empty_directory: Path):
    file = script("zsh", command, empty_directory)
    assert answer("zsh", "-f", "-c", ZSH.format(script=file, line=line)) == [expected]


def test_a_tab_imports_nothing_that_takes_long():
    code = (
        "import runpy, sys\n"
        "sys.argv = ['', 'zsh', 'train', 'lightning-rl train policy.model.']\n"
        "try: runpy.run_module('lightning_rl.config.completions', run_name='__main__')\n"
        "finally: print(*sys.modules)"
    )
    found = set(answer(sys.executable, "-c", code))
    assert "policy.model.fcnet_hiddens=" in found
    assert not {"torch", "hydra", "omegaconf", "lightning", "gymnasium", "numpy"} & found


def test_an_unknown_shell_is_one_line(command: Command):
    assert "invalid choice: 'tcsh'" in command("completion", "tcsh").refusal
