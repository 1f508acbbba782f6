"""Getting public data: from an offline mirror, from the cache, or from its publisher, and always verified."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Literal

from forerun.core.atomic_write import write_bytes
from forerun.core.data.archive import content_of
from forerun.core.data.registry import File, Source, select
from forerun.core.errors import DataError, Problem
from forerun.core.slices import folder

MIRROR_VARIABLE = "FORERUN_DATA_DIR"
CACHE_VARIABLE = "FORERUN_CACHE_DIR"


class _NotReached(DataError):
    """A publisher did not answer: what else it serves is not asked for."""


def dataset(name: str) -> Path:
    """The path of public data: of a file, of a folder with all its files, or of the folder that contains a
    source.

    Raises UnknownName, or DataError saying the name, its address and the mirror's variable.
    """
    files = select(name)
    paths = fetch(name)
    if len(files) == 1:
        return paths[0]
    # The folder of this name, or the one that the files of a source share, below the folder of all domains.
    names = [Path(source.full_name(file)) for source, file in files]
    root = paths[0].parents[len(names[0].parts) - 1]
    exact = root / name.strip("/")
    return exact if exact.is_dir() else root / os.path.commonpath([one.parent for one in names])


def fetch(name: str) -> tuple[Path, ...]:
    """All files that a name stands for, fetched where needed and verified; DataError lists every one that failed, up to
    the first that its publisher did not answer for."""
    paths: list[Path] = []
    problems: list[Problem] = []
    for source, file in select(name):
        try:
            paths.append(_place(source, file))
        except _NotReached as error:
            raise DataError(*problems, *error.problems) from None
        except DataError as error:
            problems.extend(error.problems)
    if problems:
        raise DataError(*problems)
    return tuple(paths)


def status(source: Source, file: File) -> Literal["mirror", "cached", "to fetch", "by hand"]:
    """Where a file is now, or how it would come; digests are not looked at."""
    mirror = mirror_dir()
    if mirror is not None and (mirror / source.full_name(file)).is_file():
        return "mirror"
    if (cache_dir() / source.full_name(file)).is_file():
        return "cached"
    reached = packaged(source, file) is not None or (source.url(file) and mirror is None)
    return "to fetch" if reached else "by hand"


def packaged(source: Source, file: File) -> Path | None:
    """A small table of ours that comes with the program, its licence beside it; None for other files."""
    path = folder(source.domain) / "packaged" / file.path
    return path if path.is_file() else None


def mirror_dir() -> Path | None:
    """The offline mirror, laid out as domain/path; None if the environment names none."""
    named = os.environ.get(MIRROR_VARIABLE, "")
    return Path(named).expanduser() if named else None


def cache_dir() -> Path:
    """The folder of downloaded files: FORERUN_CACHE_DIR/data, else a folder in the user's cache."""
    named = os.environ.get(CACHE_VARIABLE, "")
    if named:
        return Path(named).expanduser() / "data"
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path.home() / ".cache") / "forerun" / "data"


def _place(source: Source, file: File) -> Path:
    """The verified path of one file."""
    name = source.full_name(file)
    mirror = mirror_dir()
    if mirror is not None and (mirror / name).exists():
        _verify(mirror / name, file, name)
        return mirror / name
    cached = cache_dir() / name
    if cached.exists():
        _verify(cached, file, name)
        return cached
    if (ours := packaged(source, file)) is not None:
        # Into the cache, beside what is downloaded of the same publication.
        try:
            cached.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError.at(name, f"cannot be copied to {cached}: {error.strerror}") from None
        write_bytes(cached, ours.read_bytes(), error=DataError)
        _verify(cached, file, name)
        return cached
    url = source.url(file)
    if mirror is not None:
        raise DataError.at(
            name,
            f"is not in the mirror {mirror} ({MIRROR_VARIABLE}), and with a mirror nothing is "
            f"downloaded; {_origin(url, file)}",
        )
    if not url:
        raise DataError.at(name, f"{_origin(url, file)}; put it at {MIRROR_VARIABLE}/{name}")
    _download(url, cached, source, file)
    return cached


def _origin(url: str, file: File) -> str:
    return f"it is served at {url}" if url else f"no address serves it: {file.how}"


def _verify(path: Path, file: File, name: str) -> None:
    if not path.is_file():
        raise DataError.at(name, f"{path} is not a file")
    size = path.stat().st_size
    if size != file.size:
        pointer = " (a pointer left by Git LFS?)" if size < 200 < file.size else ""
        raise DataError.at(name, f"{path} has {size} bytes, {file.size} are expected{pointer}")
    with path.open("rb") as opened:
        actual = hashlib.file_digest(opened, "sha256").hexdigest()
    if actual != file.sha256:
        raise DataError.at(name, f"{path} has sha256 {actual}, {file.sha256} is expected")


def _download(url: str, target: Path, source: Source, file: File) -> None:
    """Fetch one file into the cache, verified and written atomically."""
    name = source.full_name(file)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # A folder of its own: two fetches of one file do not meet, and nothing that is there is replaced.
        with tempfile.TemporaryDirectory(prefix=".forerun-", dir=target.parent) as folder:
            if file.archive:
                archive = _retrieve(url, None, cache_dir() / "archives")
                content = content_of(archive, size=file.size, sha256=file.sha256)
                if content is None:
                    raise DataError.at(
                        name, f"no file in the archive {file.archive} is the one of the registry"
                    )
                partial = Path(folder) / target.name
                partial.write_bytes(content)
            else:
                partial = _retrieve(url, file.sha256, Path(folder))
            _verify(partial, file, name)
            partial.replace(target)
    except DataError as error:
        raise DataError(*(_at(problem, name) for problem in error.problems)) from None
    except OSError as error:
        answered = getattr(error, "response", None) is not None
        raise (DataError if answered else _NotReached).at(name, _failed(url, name, error)) from None
    except ValueError:
        what = f"{url} no longer serves the file of the registry (sha256 {file.sha256}); {_by_hand(name)}"
        raise DataError.at(name, what) from None


def _retrieve(url: str, sha256: str | None, folder: Path) -> Path:
    """Download with pooch; OSError (requests' errors are) or ValueError (another digest)."""
    import pooch

    pooch.get_logger().setLevel("WARNING")
    fname = hashlib.sha256(url.encode()).hexdigest()[:16] + "-" + url.rsplit("/", 1)[-1]
    return Path(pooch.retrieve(url, f"sha256:{sha256}" if sha256 else None, fname=fname, path=folder))


def _at(problem: Problem, name: str) -> Problem:
    return problem if problem.where == name else Problem(name, str(problem))


def _failed(url: str, name: str, error: OSError) -> str:
    reason = type(error).__name__ if not error.strerror else error.strerror
    return f"could not be fetched from {url} ({reason}); {_by_hand(name)}"


def _by_hand(name: str) -> str:
    return f"without a network, name an offline mirror that has {name} in {MIRROR_VARIABLE}"
