"""Checkpoint files: written whole or not at all, and damaged files refused with a reason."""

from __future__ import annotations

import errno
import gc
import os
import resource
import signal
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from lightning_rl.callbacks import AtomicCheckpointIO
from lightning_rl.errors import CheckpointError
from lightning_rl.run_directory.atomic import duplicate, remove_staging, write_atomically
from tests.run_processes import Fork


def whole(size: int = 1000, value: float = 1.0) -> dict[str, Any]:
    return {"policy": {}, "counters": {"env_steps": 1}, "state_dict": {"weight": torch.full((size,), value)}}


def saved(directory: Path, size: int = 1000) -> Path:
    AtomicCheckpointIO().save_checkpoint(whole(size), directory / "last.ckpt")
    return directory / "last.ckpt"


def die_at(place: str) -> None:
    """Make this process kill itself once half of the bytes are in the file, or before or after syncing or renaming."""

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    opened, fsync, replace = Path.open, os.fsync, os.replace

    def torn(path: Path, mode: str = "r", *args: Any, **keywords: Any) -> Any:
        file = opened(path, mode, *args, **keywords)

        def write(content: bytes) -> Any:
            if len(content) < 1000:  # headers
                return file.write(content)
            file.write(bytes(content)[: len(content) // 2])
            file.flush()
            return die()

        return nullcontext(SimpleNamespace(write=write)) if "staging" in path.name else file

    patches: dict[str, tuple[Any, str, Any]] = {
        "half_written": (Path, "open", torn),
        "before_fsync": (os, "fsync", lambda descriptor: die()),
        "after_fsync": (os, "fsync", lambda descriptor: (fsync(descriptor), die())),
        "before_replace": (os, "replace", lambda *paths: die()),
        "after_replace": (os, "replace", lambda *paths: (replace(*paths), die())),
    }
    setattr(*patches[place])


@pytest.mark.parametrize("place", ["half_written", "before_fsync", "after_fsync", "before_replace", "after_replace"])
def test_kill_9_while_writing_leaves_the_old_or_the_new_file_whole(tmp_path: Path, place: str):
    path, io = saved(tmp_path / "checkpoints"), AtomicCheckpointIO()

    def write() -> None:
        die_at(place)
        io.save_checkpoint({**whole(value=2.0), "counters": {"env_steps": 2}}, path)

    with Fork(write, tmp_path / "log.txt") as process:
        assert process.wait() == -signal.SIGKILL, process.text
    assert io.load_checkpoint(path)["counters"]["env_steps"] == (2 if place == "after_replace" else 1)
    remove_staging(path.parent)
    assert [entry.name for entry in path.parent.iterdir()] == ["last.ckpt"]


def test_a_file_system_that_is_full_leaves_the_old_file_and_no_other(tmp_path: Path):
    """RLIMIT_FSIZE makes write(2) fail with EFBIG in the middle of the file, as a full disk does with ENOSPC."""
    path = saved(tmp_path / "checkpoints")
    before = path.read_bytes()

    def write() -> int | None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        try:
            AtomicCheckpointIO().save_checkpoint(whole(100_000), path)
        except OSError as error:
            return error.errno
        return 0

    with Fork(write, tmp_path / "log.txt") as process:
        assert process.wait() == errno.EFBIG, process.text
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == ["last.ckpt"]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_large_tensors_are_not_copied_while_writing_and_not_read_while_loading(tmp_path: Path):
    path, size = tmp_path / "last.ckpt", 64 * 2**20
    checkpoint = {"policy": {}, "replay": torch.zeros(size, dtype=torch.uint8)}
    tracemalloc.start()
    AtomicCheckpointIO().save_checkpoint(checkpoint, path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert path.stat().st_size > size and most < size / 16
    before = own_bytes()
    loaded = AtomicCheckpointIO().load_checkpoint(path)
    assert own_bytes() - before < size / 4
    assert torch.equal(loaded["replay"], checkpoint["replay"])


def own_bytes() -> int:
    """Memory of this process that is not backed by files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def test_writing_to_loaded_tensors_does_not_change_the_file(tmp_path: Path):
    path = saved(tmp_path)
    before = path.read_bytes()
    AtomicCheckpointIO().load_checkpoint(path)["state_dict"]["weight"].fill_(5.0)
    assert path.read_bytes() == before


def test_an_optimizer_s_moments_do_not_keep_the_file(tmp_path: Path):
    """`load_state_dict` takes them as they are; a buffer of gigabytes would stay on the disk after it is pruned."""
    path = tmp_path / "last.ckpt"
    moments = {"state": {0: {"step": torch.tensor(3.0), "exp_avg": torch.ones(100)}}, "param_groups": [{"lr": 0.1}]}
    AtomicCheckpointIO().save_checkpoint({**whole(), "optimizer_states": [moments]}, path)
    loaded = AtomicCheckpointIO().load_checkpoint(path)
    (found,) = loaded.pop("optimizer_states")
    del loaded
    gc.collect()
    assert str(path) not in Path("/proc/self/maps").read_text()
    assert found["param_groups"] == [{"lr": 0.1}] and found["state"][0]["exp_avg"].sum() == 100


def test_content_is_synced_before_it_is_renamed_and_the_directory_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """From the directory of the file: renaming is atomic only within one file system; $TMPDIR may be another."""
    calls: list[Any] = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: (calls.append("fsync"), fsync(descriptor)))
    monkeypatch.setattr(os, "replace", lambda *paths: (calls.append(Path(paths[0]).parent), replace(*paths)))
    saved(tmp_path / "deep")
    assert calls == ["fsync", tmp_path / "deep", "fsync"]


def test_a_duplicate_keeps_its_content_when_the_first_name_gets_another(tmp_path: Path):
    first, second = tmp_path / "last.ckpt", tmp_path / "step.ckpt"
    write_atomically(first, b"one")
    duplicate(first, second)
    write_atomically(first, b"two")
    assert (first.read_bytes(), second.read_bytes()) == (b"two", b"one")


def test_a_duplicate_is_copied_where_there_are_no_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def no_links(*paths: Any) -> None:
        raise OSError("Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    write_atomically(tmp_path / "last.ckpt", b"one")
    duplicate(tmp_path / "last.ckpt", tmp_path / "step.ckpt")
    assert (tmp_path / "step.ckpt").read_bytes() == b"one"


def test_a_file_that_is_no_whole_checkpoint_is_refused_by_name(tmp_path: Path):
    path = saved(tmp_path)
    content = path.read_bytes()
    truncated = (content[: int(share * len(content))] for share in (0.0, 0.01, 0.3, 0.7, 0.99))
    for damaged in (*truncated, b"a text file\n", b"PK\x03\x04 not really a zip"):
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=r"last\.ckpt"):
            AtomicCheckpointIO().load_checkpoint(path)
    torch.save({"state_dict": {}}, tmp_path / "other.ckpt")
    for name, words in (("other", "written by lightning_rl"), ("none", r"last\.ckpt")):  # the usual name
        with pytest.raises(CheckpointError, match=words):
            AtomicCheckpointIO().load_checkpoint(tmp_path / f"{name}.ckpt")


def test_a_flipped_byte_is_found_or_harmless(tmp_path: Path):
    """Any byte of the file: refused with our error, or (in padding) loaded with the same tensors; no other error."""
    path, io = saved(tmp_path, 200), AtomicCheckpointIO()
    content = path.read_bytes()
    refused = 0
    for position in range(0, len(content), 7):
        path.write_bytes(content[:position] + bytes([content[position] ^ 0xFF]) + content[position + 1 :])
        try:
            loaded = io.load_checkpoint(path)
        except CheckpointError:
            refused += 1
        else:
            assert torch.equal(loaded["state_dict"]["weight"], torch.ones(200))
    assert refused > len(content) // 7 // 2


def test_code_in_a_file_is_not_run(tmp_path: Path):
    class Malicious:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "ran",)

    torch.save({**whole(), "extra": Malicious()}, tmp_path / "last.ckpt")
    with pytest.raises(CheckpointError):
        AtomicCheckpointIO().load_checkpoint(tmp_path / "last.ckpt", weights_only=False)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (np.float64(1.0), r"checkpoint\['callbacks'\]\['Mine'\] is a numpy.float64"),
        ([1, {"a": np.zeros(2)}], r"checkpoint\['callbacks'\]\['Mine'\]\[1\]\['a'\] is a numpy.ndarray"),
        (Path("x"), r"is a pathlib\."),
    ],
)
def test_values_that_could_not_be_loaded_again_are_not_written(tmp_path: Path, value: Any, place: str):
    with pytest.raises(CheckpointError, match=place):
        AtomicCheckpointIO().save_checkpoint({"callbacks": {"Mine": value}}, tmp_path / "last.ckpt")
    assert not list(tmp_path.iterdir())


def test_two_threads_that_write_one_file_leave_one_complete_content(tmp_path: Path):
    contents = [bytes([number]) * 100_000 for number in range(4)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda each: write_atomically(tmp_path / "file", each, durable=False), contents * 50))
    assert (tmp_path / "file").read_bytes() in contents
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
