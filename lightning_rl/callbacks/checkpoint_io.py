"""Writes checkpoint files atomically, and reads them without running code from them."""

from __future__ import annotations

import os
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from lightning.fabric.plugins import TorchCheckpointIO
from lightning_utilities.core.apply_func import apply_to_collection

from lightning_rl.errors import CheckpointError
from lightning_rl.run_directory.atomic import write_atomically
from lightning_rl.run_directory.checkpoint_files import check_version, foreign, read_checkpoint_file

__all__ = ["AtomicCheckpointIO", "check_plain"]

SCALARS = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size)


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes checkpoints atomically and durably, and reads them without running code from the file.

    Lightning's writer stages files in $TMPDIR, so across file systems it copies over the old file, and it never syncs.

    Args:
        directories: files may only be written and deleted below these: the run's, and others that the user has named. A
            checkpoint or config.yaml could name other places, by the `filename` and the state of Lightning's
            ModelCheckpoint. Empty: any.
    """

    def __init__(self, directories: Iterable[str | os.PathLike[str]] = ()) -> None:
        self.directories = [Path(directory) for directory in directories]

    def allow(self, directory: str | os.PathLike[str]) -> None:
        """Also allow writing to and deleting from this directory."""
        if self.directories:
            self.directories.append(Path(directory))

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any = None
    ) -> None:
        """Write `checkpoint` to `path`.

        Raises:
            CheckpointError: `path` is outside of the directories; or a part of the checkpoint could not be loaded again
                with `weights_only=True`; names it.
            OSError: the file could not be written, for example because the disk is full; a file that was there before
                is untouched.
        """
        if not self._is_allowed(path):
            raise CheckpointError(
                f"checkpoint {path} is not written: it is outside of {self.directories[0]}, the directory of the run; "
                "Algorithm.save(path) writes anywhere, and so does a Trainer after "
                "trainer.strategy.checkpoint_io.allow(directory)"
            )
        check_plain(checkpoint)

        def save(file: BinaryIO) -> None:  # directly into the file: a replay buffer is not in memory twice
            watched = _Watched(file)
            try:
                torch.save(checkpoint, watched)  # pyright: ignore[reportArgumentType]
            except RuntimeError:
                if watched.error is None:
                    raise
                raise watched.error from None

        write_atomically(Path(path), save)

    def load_checkpoint(
        self,
        path: str | os.PathLike[str],
        map_location: Callable[..., Any] | None = None,
        weights_only: bool | None = None,
    ) -> dict[str, Any]:
        """The content of the file, on the CPU; `weights_only` is always on, whatever the argument.

        Raises:
            CheckpointError: the file is missing, damaged, not of this package or of a newer version of it; names file,
                reason and next step.
        """
        checkpoint = read_checkpoint_file(path)
        # Lightning's spawn and fork strategies also pass weights from the first rank to the parent process through this
        # class.
        if not isinstance(checkpoint, dict) or not (
            "policy" in checkpoint or all(isinstance(value, torch.Tensor) for value in checkpoint.values())
        ):
            raise foreign(path)
        if "policy" in checkpoint:
            check_version(checkpoint, path)
        if "optimizer_states" in checkpoint:  # an optimizer would keep these mapped tensors, and with them the file
            states = checkpoint["optimizer_states"]
            checkpoint["optimizer_states"] = apply_to_collection(states, torch.Tensor, torch.clone)
        return checkpoint

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Delete the file if it exists.

        ModelCheckpoint deletes files that its state names, and that state comes from a file.

        Raises:
            CheckpointError: its name is not a checkpoint's, or leads through "..", or is outside of the directories.
        """
        if Path(path).suffix != ".ckpt":
            raise CheckpointError(f"{path} is not deleted: its name does not end with .ckpt")
        if ".." in Path(path).parts or not self._is_allowed(path):
            raise CheckpointError(f"{path} is not deleted: it is not in the directory of the run")
        Path(path).unlink(missing_ok=True)

    def _is_allowed(self, path: str | os.PathLike[str]) -> bool:
        # The last weights of a rank that Lightning started are passed on to its parent process by this file.
        passed_on = Path(path).name == ".temp.ckpt" and Path(path).parent.parent == Path(tempfile.gettempdir())
        if not self.directories or passed_on:
            return True
        place = Path(path).parent.resolve()  # a link itself is replaced or deleted, not its target
        return any(place.is_relative_to(each.resolve()) for each in self.directories)


class _Watched:
    """A file that stores why a write failed: `torch.save` only says that it failed."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.error: OSError | None = None

    def write(self, content: Any) -> int:
        """Write to the file."""
        try:
            return self.file.write(content)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        """Flush the file."""
        self.file.flush()


def check_plain(value: Any, where: str = "checkpoint") -> None:
    """Raise an error for values that `torch.load(weights_only=True)` could not read back.

    Raises:
        CheckpointError: names the place, the type found, and what to store instead.
    """
    if isinstance(value, torch.Tensor) or type(value) in SCALARS:
        return
    if type(value) in (dict, OrderedDict):
        children = [(f"{where}[{key!r}]", child) for key, child in value.items()]
        children += [(f"key {key!r} of {where}", key) for key in value if type(key) not in SCALARS]
    elif type(value) in (list, tuple, set):
        children = [(f"{where}[{index}]", child) for index, child in enumerate(value)]
    else:
        wanted = "a dict" if isinstance(value, Mapping) else "a tensor, number, string or plain container"
        raise CheckpointError(
            f"{where} is a {type(value).__module__}.{type(value).__qualname__}, which a checkpoint cannot hold:"
            f" store {wanted} in state_dict or on_save_checkpoint"
        )
    for place, child in children:
        check_plain(child, place)
