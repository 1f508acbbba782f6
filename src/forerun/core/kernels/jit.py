"""One compile policy for every kernel.

A kernel is a plain function on numbers and arrays, decorated with `@kernel`. The policy is deterministic (no fast
math, one division rule), releases the interpreter lock and caches compiled code on disk.

The disk cache has two pitfalls. numba trusts the files that it finds: see `_SoundFiles`. And it notices an edit of the
kernel's own file, but not of a file it calls into, and then runs stale code. So the cache folder is named by a digest of
everything a kernel may reach: the Python and library versions, its own module, and the modules that this imports, however
deep. A kernel module may import only numpy, numba and other kernel modules (the architecture tests check it), so the
digest changes with nothing else. Several processes that start with an empty cache would each compile the same kernels at
the same time: one compiles, and the others wait for its file (see `_Kernel`).

The folder is `$FORERUN_CACHE_DIR/kernels`, else `cache/kernels` in the virtual environment if that has one, else the
user's cache folder; if none can be written, a private temporary folder; if that fails too, nothing is cached. With
NUMBA_DISABLE_JIT=1 kernels run as plain Python.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import io
import os
import platform
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar, overload

import numba
import numpy as np
from numba.core import ir
from numba.core.caching import IndexDataCacheFile
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher

from forerun.core.sources import digest, reached, uninstalled

try:
    import fcntl
except ImportError:  # not on Windows, where each process compiles for itself
    fcntl = None  # type: ignore[assignment]

#: how long a process waits for another that compiles the same kernel, before it does so, too
_PATIENCE_S: Final = 600.0

_F = TypeVar("_F", bound=Callable[..., Any])


@overload
def kernel(function: _F) -> _F: ...
@overload
def kernel(
    *, parallel: bool = False, inline: bool = False, allocates: bool = True, internal: bool = False
) -> Callable[[_F], _F]: ...
def kernel(
    function: _F | None = None,
    *,
    parallel: bool = False,
    inline: bool = False,
    allocates: bool = True,
    internal: bool = False,
) -> _F | Callable[[_F], _F]:
    """Compile a function on first use, under the project's policy.

    parallel: allow `numba.prange` (default no); results must not depend on the number of threads. inline: copy the function
    into its callers (default no), for small functions in hot loops that numba does not inline by itself. allocates: make
    arrays or return them (default yes); without, references are not counted, and tuples of arrays are free to handle.
    internal: only kernels call it (default no): what unpacks arguments, long where they are tuples, is not compiled.
    """
    compiling = functools.partial(
        _compile, parallel=parallel, inline=inline, allocates=allocates, internal=internal
    )
    return compiling if function is None else compiling(function)


def _compile(function: _F, *, parallel: bool, inline: bool, allocates: bool, internal: bool) -> _F:
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "parallel": parallel}
    options["no_cfunc_wrapper"] = True  # nobody calls a kernel from C; a twelfth of the time to compile
    if inline:
        options["inline"] = "always"
    if not allocates:
        options["_nrt"] = False
    if internal:
        options["no_cpython_wrapper"] = True
    folder = _cache_folder(function.__module__, Path(function.__code__.co_filename))
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(folder) if folder else before
    try:
        compiled: _F = numba.njit(cache=folder is not None, **options)(function)
    finally:
        numba.config.CACHE_DIR = before
    if hasattr(compiled, "_cache") and folder is not None:
        compiled._cache._cache_file.__class__ = _SoundFiles
    if hasattr(compiled, "_cache"):
        compiled.__class__ = _Internal if internal else _Kernel
    return compiled


class _Kernel(CPUDispatcher):  # type: ignore[misc]
    """A kernel that one process compiles at a time, so that those who wait find it in the cache."""

    def compile(self, sig: Any) -> Any:
        # In the order in which numba takes its own lock and then kernels that this one calls: no two wait for each other.
        with global_compiler_lock, _flat_scopes(), contextlib.ExitStack() as locked:
            if hasattr(self._cache, "_cache_file") and not self._compiling_counter:
                locked.enter_context(_alone(Path(f"{self._cache._cache_file._index_path}.lock")))
            return super().compile(sig)


class _Internal(_Kernel):
    """A kernel that only kernels call."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"{self.py_func.__module__}.{self.py_func.__name__} is called by kernels only")


class _SoundFiles(IndexDataCacheFile):  # type: ignore[misc]
    """The files in which numba stores a function, each with a checksum of its name and content at its end.

    numba reads a file by unpickling it, which ignores what follows. A file that cannot be read, or has another checksum, is
    as good as none: the function is compiled again, and the file replaced. One that cannot be written is left out.
    """

    def save(self, key: Any, data: Any) -> None:
        with contextlib.suppress(OSError):
            super().save(key, data)

    def _load_index(self) -> Any:
        return super()._load_index() if _is_sound(Path(self._index_path)) else {}

    def _load_data(self, name: str) -> Any:
        if not _is_sound(Path(self._data_path(name))):
            raise FileNotFoundError(name)
        return super()._load_data(name)

    @contextlib.contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[io.BytesIO]:
        content = io.BytesIO()
        yield content
        with super()._open_for_write(filepath) as file:
            file.write(content.getvalue() + _checksum(Path(filepath), content.getvalue()))


@contextlib.contextmanager
def _flat_scopes() -> Iterator[None]:
    """While this lasts, numba does not copy the variables in the scope of a function that it inlines.

    It copies block by block, twice, and with each block all variables of the function: a kernel into which others are
    inlined took 94 s to compile, and 56 s without. The code that comes out is the same. Under numba's lock only.
    """
    before = vars(ir.Scope).get("__deepcopy__")
    ir.Scope.__deepcopy__ = _flat
    try:
        yield
    finally:
        if before is None:
            del ir.Scope.__deepcopy__
        else:
            ir.Scope.__deepcopy__ = before


def _flat(scope: ir.Scope, memo: dict[int, Any]) -> ir.Scope:
    """A scope to which variables can be added; those that it has are never changed."""
    copied = memo[id(scope)] = copy.copy(scope)
    copied.localvars = copy.copy(scope.localvars)
    copied.localvars._con = dict(scope.localvars._con)
    copied.redefined = scope.redefined.copy()
    copied.var_redefinitions = scope.var_redefinitions.copy()
    for name, versions in scope.var_redefinitions.items():
        copied.var_redefinitions[name] = set(versions)
    return copied


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """While this lasts, other processes wait here for the same file, except where files cannot be locked."""
    with contextlib.ExitStack() as opened:
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            opened.callback(os.close, file)
            patient_until = time.monotonic() + _PATIENCE_S
            while fcntl is not None and time.monotonic() < patient_until:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    # Closing is not enough: a process that was forked meanwhile has the file open, too.
                    opened.callback(fcntl.flock, file, fcntl.LOCK_UN)
                    break
                except BlockingIOError:
                    time.sleep(0.05)
        yield


def _checksum(path: Path, content: bytes) -> bytes:
    return hashlib.blake2b(content, key=path.name.encode()[-64:]).digest()


def _is_sound(path: Path) -> bool:
    """Whether a file is as it was written. False for one that cannot be read."""
    try:
        content = path.read_bytes()
    except OSError:
        return False
    size = hashlib.blake2b().digest_size
    return content[-size:] == _checksum(path, content[:-size])


@functools.cache
def cache_root() -> Path | None:
    """The folder of compiled kernels, or None if no folder can be written."""
    named = os.environ.get("FORERUN_CACHE_DIR")
    candidates = [Path(named)] if named else [*_beside_installation(), _user_cache()]
    for candidate in candidates:
        if _usable(candidate / "kernels"):
            return candidate / "kernels"
    # Compiled code is loaded by unpickling: a folder is safe only if no other user can write to it.
    private = Path(tempfile.gettempdir()) / f"forerun-kernels-{_user_id()}"
    return private if _usable(private) and _is_private(private) else None


@functools.cache
def _cache_folder(module: str, source: Path) -> Path | None:
    root = cache_root()
    if root is None or not source.is_file():
        return None
    versions = (platform.python_version(), numba.__version__, np.__version__, platform.machine())
    own = {__name__.partition(".")[0], module.partition(".")[0]}
    files = reached(module, source, lambda name: name.partition(".")[0] in own or uninstalled(name))
    return root / digest(files, *versions)


def _beside_installation() -> list[Path]:
    """The folder of kernels in the virtual environment, if `make` made one."""
    folder = Path(sys.prefix) / "cache"
    return [folder] if sys.prefix != sys.base_prefix and (folder / "kernels").is_dir() else []


def _user_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    if base:
        return Path(base) / "forerun"
    try:
        return Path.home() / ".cache" / "forerun"
    except RuntimeError:  # no home folder is known for this user
        return Path(tempfile.gettempdir()) / "forerun-no-home" / "never"


def _usable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _is_private(folder: Path) -> bool:
    state = folder.lstat()
    return stat.S_ISDIR(state.st_mode) and state.st_uid == _user_id() and not state.st_mode & 0o077


def _user_id() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0
