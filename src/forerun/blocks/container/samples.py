"""What a sample is called: rules for keys that are safe to write as files anywhere."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from forerun.blocks.container.shards import refuse_shards
from forerun.core.errors import DataError, Problem

MAX_KEY_BYTES: Final = 4096
#: control characters, and halves of characters
_UNWRITABLE: Final = re.compile("[\x00-\x1f\ud800-\udfff]")
#: what a file is called below the target while it is being restored
BEGUN: Final = ".forerun-restoring"


def undecodable(where: object, what: str, error: Exception) -> DataError:
    """What a decoding library threw, in one line that names sample and place; the library knows neither.

    Parameters
    ----------
    where : the file.
    what : the sample in words.
    error : the library's own.
    """
    message = re.sub(r"<_io\.BytesIO[^>]*>", "the sample", str(error).partition("\n")[0])[:200]
    return DataError(Problem(str(where), f"{what} cannot be decoded: {type(error).__name__}: {message}"))


#: a part's name, behind the stem: words that begin with a letter, so that 0001.jpg is a number and no part
_PART: Final = re.compile(r"[A-Za-z_][\w-]*(\.[A-Za-z_][\w-]*)*")
#: more files of one stem than this are no parts of one sample
MOST_PARTS: Final = 32


def member_stem(key: str) -> str:
    """What WebDataset calls a member's sample: the key up to the first dot of its file name."""
    folder, slash, name = key.rpartition("/")
    return folder + slash + name.partition(".")[0]


def part_name(key: str) -> str:
    """The part of its sample that a key names: what follows the first dot of its file name."""
    return key.rpartition("/")[2].partition(".")[2]


def sample_groups(keys: Sequence[str]) -> list[list[int]]:
    """The numbers of the keys of each sample, samples by their first key, parts in the keys' order.

    Keys of one stem are one sample, as in WebDataset: an image, its class and its JSON. Names without an extension, hidden
    ones, extensions of which a word begins with no letter (`scan.0001.png`), and stems of more than `MOST_PARTS` files are
    each a sample.

    Equal keys have equal groups wherever they come from, so files, blocks and tar agree on what a sample is.

    Parameters
    ----------
    keys : sorted or not.
    """
    by_stem: dict[tuple[str, int], list[int]] = {}
    for number, key in enumerate(keys):
        stem = member_stem(key)
        part = bool(stem) and not stem.endswith("/") and _PART.fullmatch(part_name(key)) is not None
        by_stem.setdefault((stem, -1) if part else (key, number), []).append(number)
    groups: list[list[int]] = []
    for group in by_stem.values():
        groups += [group] if len(group) <= MOST_PARTS else [[number] for number in group]
    return groups


@dataclass(frozen=True)
class FileEntry:
    """A file of a source.

    Parameters
    ----------
    key : its relative path with slashes.
    path : where it lies, or what messages call it if `fetch` is given.
    size_bytes : when the source was listed; a file that has another size later is an error.
    fetch : reads it where it lies elsewhere than in a directory (default: it is read at `path`).
    modified_ns : when it was written last (default: unknown).
    """

    key: str
    path: Path
    size_bytes: int
    fetch: Callable[[], bytes] | None = None
    modified_ns: int = 0

    def read(self) -> bytes:
        """Its bytes."""
        return self.path.read_bytes() if self.fetch is None else self.fetch()


def unsafe(key: str) -> str:
    """Why a key must not become a file name, an empty text if it may."""
    parts = key.split("/")
    if not key or len(key.encode("utf-8", "surrogatepass")) > MAX_KEY_BYTES:
        return "is empty or too long"
    if key.startswith("/") or "\\" in key or (len(key) > 1 and key[1] == ":"):
        return "is absolute, or names a drive or a backslash"
    if any(part in ("", ".", "..") for part in parts):
        return "has an empty part, `.` or `..`"
    if _UNWRITABLE.search(key):
        return "has control characters or is no valid text"
    return ""


def again(key: str, seen: dict[str, str]) -> str:
    """Why a key must not follow those seen before, an empty text if it may; it is seen then.

    Parameters
    ----------
    key : of a sample.
    seen : keys by what they are where case does not count.
    """
    other = seen.get(key.casefold())
    if other is None:
        seen[key.casefold()] = key
        return ""
    return "occurs twice" if other == key else f"collides with {other!r} where case does not count"


def check_keys(keys: Iterable[str], where: object) -> None:
    """Raise DataError listing the first keys that are unsafe, double, or equal but for their case.

    At most ten keys are listed.

    Parameters
    ----------
    keys : as they would be written.
    where : named in messages.
    """
    problems: list[Problem] = []
    seen: dict[str, str] = {}
    for key in keys:
        if why := unsafe(key) or again(key, seen):
            problems.append(Problem(str(where), f"key {key[:80]!r} {why}"))
            if len(problems) == 10:
                break
    if problems:
        raise DataError(*problems)


def list_files(folder: Path) -> tuple[FileEntry, ...]:
    """The regular files below a directory, by key.

    Raises DataError for a directory that is absent or empty, links, special files, unsafe or colliding names, and for
    shards of many samples (see `shards`).
    """
    files = files_below(folder)
    refuse_shards(folder, [(entry.key, entry.size_bytes) for entry in files], folder)
    return files


def files_below(folder: Path) -> tuple[FileEntry, ...]:
    """The regular files below a directory, by key, whatever they are.

    Parameters
    ----------
    folder : of files.

    Raises DataError as `list_files` does, but for shards.
    """
    if not folder.is_dir():
        raise DataError.at(folder, "is not a directory")
    entries: list[FileEntry] = []
    problems: list[Problem] = []
    for base, folders, names in os.walk(folder):
        folders.sort()
        for path in (Path(base, name) for name in names):
            if path.is_symlink() or not path.is_file():
                problems.append(Problem(str(path), "is a link or a special file; only files are packed"))
                continue
            known = path.stat()
            key = path.relative_to(folder).as_posix()
            entries.append(FileEntry(key, path, known.st_size, modified_ns=known.st_mtime_ns))
        problems += [
            Problem(str(path), "is a link to a directory; links are not followed")
            for path in (Path(base, name) for name in folders)
            if path.is_symlink()
        ]
    if problems:
        raise DataError(*problems[:10])
    return in_order(entries, folder)


def in_order(entries: Iterable[FileEntry], where: object) -> tuple[FileEntry, ...]:
    """Entries by key. Raises DataError if there are none, or keys are unsafe or collide.

    Parameters
    ----------
    entries : of files.
    where : named in messages.
    """
    ordered = sorted(entries, key=lambda entry: entry.key.encode("utf-8", "surrogatepass"))
    if not ordered:
        raise DataError.at(where, "contains no files")
    check_keys((entry.key for entry in ordered), where)
    return tuple(ordered)


def write_file(folder: Path, key: str, data: bytes | memoryview, made: set[str] | None = None) -> None:
    """Write a sample below a folder under its (checked) key; the name is there with the whole of it, or not at all.

    Parameters
    ----------
    made : folders (as parts of keys) known to be there and no links.
    folder : that must not be left.
    key : relative path with slashes.
    data : the whole sample.

    Raises DataError for a link in the path, or a file that is there with other contents.
    """
    if key == BEGUN:
        raise DataError.at(folder / key, "is what a file is called while it is restored; no sample can be")
    path = folder / key
    parent = key.rpartition("/")[0]
    if parent and (made is None or parent not in made):
        here = folder
        for part in parent.split("/"):
            here = here / part
            if here.is_symlink():
                raise DataError.at(here, "is a link; samples are not restored through links")
        here.mkdir(parents=True, exist_ok=True)
        if made is not None:
            made.add(parent)
    if os.path.lexists(path):
        if path.is_symlink() or not path.is_file() or path.read_bytes() != data:
            raise DataError.at(path, "exists already with other contents")
        return
    begun = folder / BEGUN
    try:
        file = begun.open("xb", buffering=0)
    except FileExistsError:  # of a run that was killed
        begun.unlink()
        file = begun.open("xb", buffering=0)
    try:
        with file:
            left = memoryview(data)
            while left:  # a disk that is nearly full takes a part, and says no only to the next
                left = left[file.write(left) :]
        begun.rename(path)
    except OSError:
        begun.unlink(missing_ok=True)
        raise
