"""config.yaml: always whole, rewritten only where it changed, and named when damaged."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from lightning_rl.errors import ConfigError, SaveError
from lightning_rl.run_directory import config_file
from lightning_rl.run_directory.config_file import read_config, write_config
from lightning_rl.run_directory.process_identity import age


def config(run_dir: Path, **changed: Any) -> dict[str, Any]:
    sections: dict[str, Any] = {name: {} for name in config_file.SECTIONS}
    logger = {"csv": {"path": f"{run_dir}/metrics.csv"}}
    return {**sections, "total_env_steps": 640, "run_dir": str(run_dir), "logger": logger, **changed}


def files(run_dir: Path) -> dict[str, tuple[int, bytes]]:
    return {path.name: (path.stat().st_ino, path.read_bytes()) for path in run_dir.iterdir()}


def test_a_written_config_is_read_back(tmp_path: Path):
    write_config(config(tmp_path), tmp_path)
    assert read_config(tmp_path) == config(tmp_path)
    assert sorted(files(tmp_path)) == ["config.signature", "config.yaml"]


def test_an_unchanged_config_is_not_written_again(tmp_path: Path):
    write_config(config(tmp_path), tmp_path)
    before = files(tmp_path)
    write_config(config(tmp_path), tmp_path, env_steps=320)
    assert files(tmp_path) == before


def test_changes_are_kept_with_their_time_and_env_steps(tmp_path: Path):
    write_config(config(tmp_path, policy={"lr": 0.1}), tmp_path)
    write_config(config(tmp_path, policy={"lr": 0.1}, total_env_steps=1280), tmp_path, env_steps=640)
    write_config(config(tmp_path, policy={"lr": {"0": 0.1}}, total_env_steps=1280), tmp_path, env_steps=1280)
    first, second = yaml.safe_load((tmp_path / "config_history.yaml").read_text())
    assert age(first.pop("at")) < 60
    assert first == {"env_steps": 640, "changes": {"total_env_steps": [640, 1280]}}
    assert second["changes"] == {"policy.lr": [0.1, "(absent)"], "policy.lr.0": ["(absent)", 0.1]}
    assert second["env_steps"] == 1280
    assert read_config(tmp_path)["policy"] == {"lr": {"0": 0.1}}


def test_a_run_that_was_moved_has_its_new_place_in_the_file_and_once_in_the_history(tmp_path: Path):
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    write_config(config(old), old)
    old.rename(new)
    assert read_config(new) == config(new)
    write_config(read_config(new), new, env_steps=5)
    assert yaml.safe_load((new / "config.yaml").read_text())["logger"]["csv"]["path"] == f"{new}/metrics.csv"
    (entry,) = yaml.safe_load((new / "config_history.yaml").read_text())
    assert entry["changes"] == {"run_dir": [str(old), str(new)]}


@pytest.mark.parametrize("fails", ["fsync", "replace"])
def test_a_full_disk_changes_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str):
    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    write_config(config(tmp_path), tmp_path)
    before = files(tmp_path)
    monkeypatch.setattr(os, fails, full)
    with pytest.raises(SaveError, match=r"config.yaml"):
        write_config(config(tmp_path, total_env_steps=1280), tmp_path)
    monkeypatch.undo()
    assert files(tmp_path) == before


def test_a_damaged_file_is_named_with_the_reason(tmp_path: Path):
    no_run_dir = ("", "seed: 0\ntotal_env_steps: 640\n", "just words")
    reasons = dict.fromkeys(no_run_dir, "it has no run_dir") | {"seed: [1, 2": "expected", "\x00": "special characters"}
    for content, reason in reasons.items():
        (tmp_path / "config.yaml").write_text(content)
        with pytest.raises(ConfigError, match=rf"config.yaml is damaged \(.*{reason}") as refused:
            read_config(tmp_path)
        assert "\n" not in str(refused.value)


def test_a_file_cut_off_anywhere_is_damaged(tmp_path: Path):
    """Also where what is left is YAML with all sections: keywords that are missing would get other values."""
    write_config(config(tmp_path, callbacks=[{"callback": "a:B", "at": 3}]), tmp_path)
    whole = (tmp_path / "config.yaml").read_bytes()
    for length in range(len(whole) - 1):
        (tmp_path / "config.yaml").write_bytes(whole[:length])
        with pytest.raises(ConfigError, match="damaged"):
            read_config(tmp_path)


def test_objects_are_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="no run"):
        read_config(tmp_path)
    with pytest.raises(ConfigError, match="import paths"):
        write_config(config(tmp_path, policy={"_target_": object()}), tmp_path)
