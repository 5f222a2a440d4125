"""What this user's runs write may name the user's own code without --trust; what others could have written may not.

The modules "mine" (of the policy) and "world" (of the environment) leave a file when they are imported.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from lightning_rl import Algorithm, Policy, errors
from lightning_rl.cli import main
from lightning_rl.errors import CheckpointError, ConfigError
from lightning_rl.run_directory.config_file import is_own_run
from lightning_rl.run_directory.signature import is_own_checkpoint, is_signed, sign
from lightning_rl.runs.evaluation import evaluate
from lightning_rl.schema import trust

MODULES = {
    "mine": "from lightning_rl.policies import PPO\nclass Mine(PPO): pass\n",
    "world": "import gymnasium as gym\ndef make(**kw): return gym.make('CartPole-v1', max_episode_steps=5, **kw)\n",
}


class User:
    """A user with a key, two modules and a run; `forget` is a new process."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory, self.monkeypatch = directory, monkeypatch
        self.key_file = directory / "home" / "lightning_rl" / "signing_key"
        for name, text in MODULES.items():
            (directory / f"{name}.py").write_text(f"open({str(directory / name)!r}, 'w').close()\n{text}")
        monkeypatch.syspath_prepend(directory)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(directory / "home"))
        monkeypatch.delenv("LIGHTNING_RL_TRUST", raising=False)
        self.run_dir = directory / "run"
        self.train("policy=mine:Mine", f"run_dir={self.run_dir}")
        self.forget()

    def train(self, *overrides: str) -> None:
        small = ["workers.envs_per_worker=2", "workers.fragment_length=16", "model.fcnet_hiddens=[4]", "logger=none"]
        assert main(["train", "env.id=world:make", "total_env_steps=64", "evaluation=none", *small, *overrides]) == 0

    @property
    def last(self) -> Path:
        return self.run_dir / "checkpoints" / "last.ckpt"

    def restores_and_saves(self, to: str, **how: Any) -> Path:
        restored = Algorithm.restore(self.last, **how)
        saved = restored.save(self.directory / to)
        restored.stop()
        return saved

    def forget(self) -> None:
        fresh = set[str]()
        for module in (errors, trust):
            self.monkeypatch.setattr(module, "named_here", fresh)
        for name in MODULES:
            sys.modules.pop(name, None)
            (self.directory / name).unlink(missing_ok=True)

    def refused(self, action: Callable[[], Any]) -> bool:
        """Whether an action is refused for want of trust, before the module that is not trusted is imported."""
        self.forget()
        try:
            action()
        except (CheckpointError, ConfigError) as error:
            named = re.search(r"='(\w+):\w+' names code that you have not trusted", str(error))
            return named is not None and not (self.directory / named[1]).exists()
        return False


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[User]:
    user = User(tmp_path, monkeypatch)
    yield user
    user.forget()


def changed(file: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    """The file, with a change of its content."""
    if file.suffix == ".ckpt":
        content = torch.load(file, weights_only=True)
        change(content)
        torch.save(content, file)
    else:
        content = yaml.safe_load(file.read_text())
        change(content)
        file.write_text(yaml.safe_dump(content, sort_keys=False, explicit_end=True))
    return file


def test_a_run_of_one_s_own_needs_no_word(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = user.run_dir
    assert "--trust" not in capsys.readouterr().out, "the line after the run"
    for verb in (["evaluate", "--episodes", "1"], ["export"], ["resume", "total_env_steps=200"], ["explain", "seed"]):
        user.forget()
        assert main([verb[0], str(run_dir), *verb[1:]]) == 0, capsys.readouterr().err
    user.forget()
    assert is_own_run(run_dir), "what was resumed is signed again"
    saved = user.restores_and_saves("elsewhere/saved.ckpt")
    for file in (user.last, saved):
        user.forget()
        assert type(Policy.load(file)).__name__ == "Mine"
    assert user.key_file.stat().st_mode & 0o777 == 0o600 and user.key_file.stat().st_size == 32


def test_a_run_may_be_moved_and_its_checkpoint_taken_out(user: User) -> None:
    moved = user.run_dir.rename(user.directory / "moved")
    file = shutil.copy(moved / "checkpoints" / "last.ckpt", user.directory / "taken.ckpt")
    for place in (moved, file):
        user.forget()
        assert evaluate(Path(place), episodes=1)["lengths"] == [5]


EDITS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "another name": lambda config: config["env"].update(id="world:gym"),
    "a keyword": lambda config: config["env"]["kwargs"].update(sutton_barto_reward=True),
    "a number": lambda config: config.update(seed=7),
    "a key more": lambda config: config["env"].update(group_agents="all"),
    "another order": lambda config: config.update(seed=config.pop("seed")),
}


def test_an_edited_config_is_refused(user: User) -> None:
    file = user.run_dir / "config.yaml"
    whole = file.read_bytes()
    for name, edit in EDITS.items():
        changed(file, edit)
        assert user.refused(lambda: evaluate(user.run_dir, episodes=1)), name
        user.forget()
        assert main(["resume", str(user.run_dir), "total_env_steps=200"]) == 2, name
        assert not any((user.directory / module).exists() for module in MODULES), name
        file.write_bytes(whole)
    assert not user.refused(lambda: evaluate(user.run_dir, episodes=1))


def test_an_edited_checkpoint_is_refused(user: User) -> None:
    """Its policy's entry and its config, each with the signature of the other."""
    last = user.last
    whole = last.read_bytes()
    changed(last, lambda content: content["policy"]["kwargs"].update(gamma=0.5))
    assert user.refused(lambda: Policy.load(last)) and user.refused(lambda: Policy.load(last, trust=["other"]))
    last.write_bytes(whole)
    changed(last, lambda content: EDITS["a keyword"](content["config"]))
    assert user.refused(lambda: Algorithm.restore(last))
    taken = Path(shutil.copy(last, user.directory / "taken.ckpt"))
    assert user.refused(lambda: evaluate(taken, episodes=1))
    last.write_bytes(whole)
    changed(last, lambda content: content.update(signature=b"x" * 64))
    assert user.refused(lambda: Policy.load(last))


def test_a_signature_holds_for_no_other_file(user: User) -> None:
    """Neither that of config.yaml for a checkpoint nor that of a checkpoint for config.yaml."""
    last, signature = user.last, user.run_dir / "config.signature"
    of_config, of_checkpoint = signature.read_text(), torch.load(last, weights_only=True)["signature"]
    signature.write_text(of_checkpoint)
    changed(last, lambda content: content.update(signature=of_config))
    assert user.refused(lambda: evaluate(user.run_dir, episodes=1)) and user.refused(lambda: Policy.load(last))
    content = torch.load(last, weights_only=True)
    assert not is_signed({"config.yaml": content["config"]}, of_checkpoint)


@pytest.mark.parametrize("key", ["another", "none", "of others"])
def test_without_the_key_that_signed_it_a_run_is_refused(key: str, user: User) -> None:
    """On another machine, of another user, or where others could have read the key."""
    if key == "another":
        user.monkeypatch.setenv("XDG_CONFIG_HOME", str(user.directory / "their home"))
        assert sign({"a": 1})
    elif key == "none":
        user.key_file.unlink()
    else:
        user.key_file.chmod(0o644)
    assert user.refused(lambda: evaluate(user.run_dir, episodes=1))
    assert user.refused(lambda: Algorithm.restore(user.last))
    user.forget()
    assert evaluate(user.run_dir, episodes=1, trust=["mine", "world"])["episodes"] == 1


def test_a_package_of_the_same_name_at_another_place_is_not_imported(user: User) -> None:
    """An archive may hold a run that this user has published, and a module of the name that it uses."""
    theirs = user.directory / "theirs"
    theirs.mkdir()
    for name in MODULES:
        (user.directory / f"{name}.py").rename(theirs / f"{name}.py")
    user.monkeypatch.syspath_prepend(theirs)
    assert user.refused(lambda: evaluate(user.run_dir, episodes=1))
    assert user.refused(lambda: Policy.load(user.last))


def test_trusting_a_foreign_run_once_does_not_sign_it(user: User) -> None:
    """Neither what a resumed run writes nor what a restored Algorithm saves."""
    changed(user.run_dir / "config.yaml", EDITS["another order"])
    last = changed(user.last, lambda content: content.pop("signature"))
    user.forget()
    saved = user.restores_and_saves("saved.ckpt", trust=["mine", "world"])
    user.forget()
    assert main(["resume", str(user.run_dir), "total_env_steps=200", "--trust", "mine", "--trust", "world"]) == 0
    assert not is_own_run(user.run_dir) and user.refused(lambda: evaluate(user.run_dir, episodes=1))
    assert user.refused(lambda: Policy.load(last)) and user.refused(lambda: Policy.load(saved))


def test_without_a_place_for_the_key_nothing_is_signed_and_all_else_works(user: User) -> None:
    home = user.directory / "no directory"
    home.touch()
    user.monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    user.train("policy=ppo", f"run_dir={user.directory / 'unsigned'}")
    assert not (user.directory / "unsigned" / "config.signature").exists()
    assert user.refused(lambda: evaluate(user.directory / "unsigned", episodes=1))
    user.monkeypatch.delenv("XDG_CONFIG_HOME")
    user.monkeypatch.setenv("HOME", str(home))
    assert sign({"a": 1}) is None


def test_the_key_is_made_once_and_never_replaced(user: User) -> None:
    key = user.key_file.read_bytes()
    signature = sign({"a": 1})
    assert signature and sign({"a": 1}) == signature and user.key_file.read_bytes() == key
    assert [path.name for path in user.key_file.parent.iterdir()] == ["signing_key"]
    user.key_file.write_bytes(b"")
    assert sign({"a": 1}) is None and user.key_file.read_bytes() == b""
    user.key_file.unlink()
    os.symlink(user.directory / "other", user.key_file)
    (user.directory / "other").write_bytes(key)
    assert sign({"a": 1}) is None, "a link is not followed"


def test_tensors_are_signed_by_value_and_what_has_no_text_form_is_not_signed(user: User) -> None:
    signature = sign({"config": {"x": torch.tensor([1.0, 2.0])}, "policy": None})
    assert signature
    assert is_own_checkpoint({"config": {"x": torch.tensor([1.0, 2.0])}, "signature": signature})
    assert not is_own_checkpoint({"config": {"x": torch.tensor([1.0, 3.0])}, "signature": signature})
    assert not is_own_checkpoint({"config": {"x": torch.tensor([1, 2])}, "signature": signature})
    assert sign({"a": object()}) is None and not is_signed({"a": object()}, signature)
