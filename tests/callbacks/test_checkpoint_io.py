"""Checkpoint files: written whole or not at all, and damaged files refused with a reason."""

from __future__ import annotations

import gc
import hashlib
import os
import signal
import subprocess
import sys
import textwrap
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lightning_rl.callbacks import AtomicCheckpointIO
from lightning_rl.errors import CheckpointError
from lightning_rl.run_directory.atomic import duplicate, remove_staging, write_atomically


def whole(size: int = 1000, value: float = 1.0) -> dict[str, Any]:
    return {"policy": {}, "counters": {"env_steps": 1}, "state_dict": {"weight": torch.full((size,), value)}}


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


# The process kills itself with SIGKILL: once half of the bytes are in the file, or before or after syncing or renaming.
KILLED = """
    import io, os, signal, sys, torch
    from pathlib import Path
    from lightning_rl.callbacks import AtomicCheckpointIO
    place, path = sys.argv[1], Path(sys.argv[2])
    die = lambda: os.kill(os.getpid(), signal.SIGKILL)
    fsync, replace = os.fsync, os.replace
    if place == "half_written":
        def torn(self, mode="r", *args, open=Path.open, **kwargs):
            file = open(self, mode, *args, **kwargs)
            if "staging" in self.name:
                class Torn:
                    def __enter__(self): return self
                    def __exit__(self, *error): pass
                    def write(self, content):
                        if len(content) < 1000:  # headers
                            return file.write(content)
                        file.write(bytes(content)[: len(content) // 2]); file.flush(); die()
                return Torn()
            return file
        Path.open = torn
    elif place == "before_fsync":
        os.fsync = lambda descriptor: die()
    elif place == "after_fsync":
        os.fsync = lambda descriptor: (fsync(descriptor), die())
    elif place == "before_replace":
        os.replace = lambda *paths: die()
    elif place == "after_replace":
        os.replace = lambda *paths: (replace(*paths), die())
    AtomicCheckpointIO().save_checkpoint(
        {"policy": {}, "counters": {"env_steps": 2}, "state_dict": {"weight": torch.full((1000,), 2.0)}}, path)
"""


@pytest.mark.parametrize("place", ["half_written", "before_fsync", "after_fsync", "before_replace", "after_replace"])
def test_kill_9_while_writing_leaves_the_old_or_the_new_file_whole(tmp_path: Path, place: str):
    path = tmp_path / "last.ckpt"
    io = AtomicCheckpointIO()
    io.save_checkpoint(whole(), path)
    died = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILLED), place, str(path)], env=os.environ, check=False
    )
    assert died.returncode == -signal.SIGKILL
    assert io.load_checkpoint(path)["counters"]["env_steps"] == (2 if place == "after_replace" else 1)
    remove_staging(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["last.ckpt"]


def test_a_file_system_that_is_full_leaves_the_old_file_and_no_other(tmp_path: Path):
    """RLIMIT_FSIZE makes write(2) fail with EFBIG in the middle of the file, as a full disk does with ENOSPC."""
    path = tmp_path / "last.ckpt"
    AtomicCheckpointIO().save_checkpoint(whole(), path)
    before = digest(path)
    program = """
        import resource, signal, sys, torch
        from lightning_rl.callbacks import AtomicCheckpointIO
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        try:
            AtomicCheckpointIO().save_checkpoint({"state_dict": {"weight": torch.zeros(100_000)}}, sys.argv[1])
        except OSError as error:
            print(type(error).__name__, error.errno)
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(path)], capture_output=True, text=True, check=True
    )
    assert run.stdout.startswith("OSError 27")
    assert digest(path) == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["last.ckpt"]


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
    path = tmp_path / "last.ckpt"
    AtomicCheckpointIO().save_checkpoint(whole(), path)
    before = digest(path)
    AtomicCheckpointIO().load_checkpoint(path)["state_dict"]["weight"].fill_(5.0)
    assert digest(path) == before


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


def test_staging_is_in_the_directory_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Renaming is atomic only within one file system; $TMPDIR may be another."""
    sources = []
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda source, target: (sources.append(Path(source)), replace(source, target)))
    AtomicCheckpointIO().save_checkpoint(whole(), tmp_path / "deep" / "last.ckpt")
    assert [source.parent for source in sources] == [tmp_path / "deep"]


def test_content_is_synced_before_it_is_renamed_and_the_directory_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    calls = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: (calls.append("fsync"), fsync(descriptor)))
    monkeypatch.setattr(os, "replace", lambda *paths: (calls.append("replace"), replace(*paths)))
    write_atomically(tmp_path / "file", b"content")
    assert calls == ["fsync", "replace", "fsync"]


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


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.7, 0.99])
def test_a_truncated_file_is_refused_by_name(tmp_path: Path, share: float):
    path = tmp_path / "last.ckpt"
    AtomicCheckpointIO().save_checkpoint(whole(), path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(CheckpointError, match=r"last\.ckpt"):
        AtomicCheckpointIO().load_checkpoint(path)


def test_a_flipped_byte_is_found_or_harmless(tmp_path: Path):
    """Any byte of the file: refused with our error, or (in padding) loaded with the same tensors; no other error."""
    path = tmp_path / "last.ckpt"
    io = AtomicCheckpointIO()
    io.save_checkpoint(whole(200), path)
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


@pytest.mark.parametrize("content", [b"", b"a text file\n", b"PK\x03\x04 not really a zip"])
def test_a_foreign_file_is_refused(tmp_path: Path, content: bytes):
    path = tmp_path / "other.ckpt"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"other\.ckpt"):
        AtomicCheckpointIO().load_checkpoint(path)


def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path):
    torch.save({"state_dict": {}}, tmp_path / "other.ckpt")
    with pytest.raises(CheckpointError, match="written by lightning_rl"):
        AtomicCheckpointIO().load_checkpoint(tmp_path / "other.ckpt")


def test_a_missing_file_is_refused_with_the_usual_place(tmp_path: Path):
    with pytest.raises(CheckpointError, match=r"last\.ckpt"):
        AtomicCheckpointIO().load_checkpoint(tmp_path / "none.ckpt")


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
    writes = [
        lambda content=content: write_atomically(tmp_path / "file", content, durable=False) for content in contents
    ]
    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(write) for write in writes * 50]:
            done.result()
    assert (tmp_path / "file").read_bytes() in contents
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
