"""Small scenarios to begin with, one a domain: a commented file and its inputs, copied into a folder of the user's."""

from __future__ import annotations

import os
from pathlib import Path

from forerun.domains import room, rooms
from forerun.errors import Problem, StoreError, UnknownName

#: the scenario among a starter's files
SCENARIO = "scenario.yaml"


def starters() -> dict[str, Path]:
    """The folder of each domain that has a small scenario to begin with: `scenario.yaml` and the files it names."""
    folders = {name: Path(str(room(name).__path__[0])) / "starter" for name in rooms()}
    return {name: folder for name, folder in folders.items() if (folder / SCENARIO).is_file()}


def write_starter(domain: str, folder: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Write the domain's small scenario and its inputs into a folder, which is made if absent; the scenario comes first.

    Nothing that exists is replaced. Raises UnknownName for a domain without one, StoreError if a file of one of the names
    is there already or cannot be written.
    """
    known = starters()
    if domain not in known:
        raise UnknownName.among("domain with a scenario to begin with", domain, known)
    target = Path(folder)
    sources = sorted(known[domain].iterdir(), key=lambda path: (path.name != SCENARIO, path.name))
    present = [target / source.name for source in sources if os.path.lexists(target / source.name)]
    if present:
        raise StoreError(*(Problem(str(path), "exists already; name another folder") for path in present))
    written = []
    try:
        target.mkdir(parents=True, exist_ok=True)
        for source in sources:
            path = target / source.name
            with path.open("xb") as file:  # a file that has appeared since is not replaced either
                written.append(path)
                file.write(source.read_bytes())
    except BaseException as error:
        for path in written:
            path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise StoreError.at(error.filename or target, f"cannot be written: {error.strerror}") from error
        raise
    return tuple(written)
