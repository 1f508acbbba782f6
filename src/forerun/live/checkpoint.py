"""Checkpoints of a training program: whole or absent, named by epoch and step, recognised by their digest, without pickle.

A file is written beside its name, synced, and moved there; then the folder is synced. What the journal names is file, step
and SHA-256, and only what has that digest is read: a torn or altered file, or one that an earlier start of the job wrote
late, is passed over for the one before. States with torch tensors are written by `torch.save` and read with
`weights_only=True`; others are `.npz` files whose entry `tree` describes, as JSON, where each array belongs.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

from forerun.core.errors import StoreError
from forerun.core.regular import open_regular
from forerun.live.engines.engine import Checkpoint

_NAME: Final = re.compile(r"(\d{6})-(\d{12})\.(pt|npz)")
_ARRAY: Final = "$array"


def write(folder: Path, epoch: int, step: int, state: Mapping[str, Any]) -> Checkpoint:
    """Save a state; when this returns, it survives a loss of power.

    Raises OSError if it cannot be written, and StoreError for a state that has something else in it than arrays, tensors,
    numbers, texts, lists and dicts; neither leaves a file.

    Parameters
    ----------
    folder : of the job's checkpoints.
    epoch, step : which start of the job saves it, and the iterations in it.
    state : parts by name.
    """
    torch = _torch_of(state)
    name = f"{epoch:06d}-{step:012d}.{'npz' if torch is None else 'pt'}"
    _check(state, name, torch)
    beside = folder / f".{name}.{os.getpid()}.partial"
    try:
        with beside.open("wb") as file:
            if torch is None:
                _write_arrays(file, state)
            else:
                torch.save(dict(state), file)
            file.flush()
            os.fsync(file.fileno())
        with beside.open("rb") as file:
            digest = _digest(file)
        beside.replace(folder / name)
        _sync_folder(folder)
    finally:
        with contextlib.suppress(OSError):
            beside.unlink()
    return Checkpoint(name, step, digest)


def read(folder: Path, checkpoint: Checkpoint) -> dict[str, Any] | None:
    """The state of a checkpoint; None if its file is absent or has another digest.

    Parameters
    ----------
    folder : of the job's checkpoints.
    checkpoint : as the journal names it.
    """
    if _NAME.fullmatch(checkpoint.file) is None:
        return None
    try:
        file = open_regular(folder / checkpoint.file)
    except OSError:
        return None
    # What is loaded is the file that was hashed: it stays open in between.
    with file:
        if _digest(file) != checkpoint.sha256:
            return None
        file.seek(0)
        if checkpoint.file.endswith(".pt"):
            import torch

            state: dict[str, Any] = torch.load(file, weights_only=True, map_location="cpu")
            return state
        return _read_arrays(file)


def remove_all_but(folder: Path, names: Sequence[str], before_epoch: int) -> None:
    """Remove checkpoints of earlier starts of the job that nobody names, and what a killed process left of one.

    Parameters
    ----------
    folder : of the job's checkpoints.
    names : files that stay.
    before_epoch : files of this epoch and later ones stay, too.
    """
    for path in folder.iterdir():
        matched = re.match(r"\.?(\d{6})-\d{12}\.", path.name)
        if matched and int(matched[1]) < before_epoch and path.name not in names:
            path.unlink(missing_ok=True)


def young_s(save_s: float, failures_s: float) -> float:
    """Seconds between checkpoints that lose least to first order: sqrt(2 x save x failures) (Young, CACM 1974).

    Parameters
    ----------
    save_s : that training stands still for a checkpoint.
    failures_s : mean seconds between failures.
    """
    return math.sqrt(2 * save_s * failures_s)


def _torch_of(state: Any) -> Any:
    """The module torch, if there is a tensor in a state; None otherwise."""
    torch = sys.modules.get("torch")

    def has_tensor(value: Any) -> bool:
        if isinstance(value, Mapping):
            return any(has_tensor(item) for item in value.values())
        if isinstance(value, list | tuple):
            return any(has_tensor(item) for item in value)
        return torch is not None and isinstance(value, torch.Tensor)

    return torch if has_tensor(state) else None


def _check(value: Any, where: str, torch: Any) -> None:
    """Raise StoreError for what could be saved but not be read again without pickle."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str | int if torch else str):
                raise StoreError.at(where, f"the key {key!r} of a state is no text")
            _check(item, f"{where}: {key}", torch)
    elif isinstance(value, list | tuple):
        for at, item in enumerate(value):
            _check(item, f"{where}[{at}]", torch)
    elif not _is_leaf(value, torch):
        allowed = "tensors" if torch else "arrays"
        kind = type(value).__qualname__
        raise StoreError.at(
            where, f"is a {kind}; a state has {allowed}, numbers, texts, lists and dicts of them"
        )


def _is_leaf(value: Any, torch: Any) -> bool:
    """Whether a value without parts is one that both writing and reading know."""
    if value is None or isinstance(value, bool | int | float | str):
        return True
    if torch is not None:
        return isinstance(value, torch.Tensor)
    return type(value).__module__ == "numpy" and not value.dtype.hasobject


def _write_arrays(file: IO[bytes], state: Mapping[str, Any]) -> None:
    import numpy as np

    arrays: dict[str, Any] = {}

    def described(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: described(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [described(item) for item in value]
        if value is None or (
            isinstance(value, bool | int | float | str) and type(value).__module__ != "numpy"
        ):
            return value
        name = f"a{len(arrays)}"
        arrays[name] = np.asarray(value)
        return {_ARRAY: name}

    tree = json.dumps(described(state)).encode()
    np.savez(file, allow_pickle=False, tree=np.frombuffer(tree, np.uint8), **arrays)


def _read_arrays(file: IO[bytes]) -> dict[str, Any]:
    import numpy as np

    with np.load(file, allow_pickle=False) as arrays:

        def built(value: Any) -> Any:
            if isinstance(value, dict):
                return (
                    arrays[value[_ARRAY]]
                    if set(value) == {_ARRAY}
                    else {key: built(item) for key, item in value.items()}
                )
            return [built(item) for item in value] if isinstance(value, list) else value

        state: dict[str, Any] = built(json.loads(arrays["tree"].tobytes()))
    return state


def _digest(file: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while block := file.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()


def _sync_folder(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
