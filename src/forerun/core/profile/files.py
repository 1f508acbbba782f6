"""Profile files: one record each, read as strictly as a scenario and written so that reading restores it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

from forerun.core.atomic_write import WRITTEN, write_text
from forerun.core.errors import ProfileError, ScenarioError
from forerun.core.scenario.decode import decode
from forerun.core.scenario.spec import Input, Spec, file_digest, yaml_text
from forerun.core.scenario.text import read_document

SPEC_VERSION = 1

P = TypeVar("P", bound=Spec)


def read_profile(given: Input | str | os.PathLike[str], kind: type[P]) -> P:
    """The profile of a file.

    given: the file, or an input with the digest that it must have. kind: the record. Raises ProfileError, with file and
    line, for another kind of profile, another version or inconsistent values; and for a file with another digest.
    """
    pinned = given if isinstance(given, Input) else Input(path=os.fspath(given))
    path = Path(pinned.path)
    if pinned.sha256 and path.is_file() and file_digest(path) != pinned.sha256:
        raise ProfileError.at(str(path), "has changed since the scenario was resolved; its digest differs")
    try:
        document = read_document(path)
        expected = kind.__name__.lower()
        stated = document.data.get("profile") if isinstance(document.data, dict) else None
        if stated != expected:
            what = "is no profile" if stated is None else f"is a {stated!r} profile"
            raise ProfileError.at(
                document.where(()), f"{what}; one that begins with `profile: {expected}` is wanted"
            )
        version = document.data.get("spec_version", SPEC_VERSION)
        if version != SPEC_VERSION:
            raise ProfileError.at(
                document.where(("spec_version",)),
                f"{version!r} was found, this forerun reads version {SPEC_VERSION}",
            )
        return decode(document, kind)
    except ScenarioError as error:
        raise ProfileError(*error.problems) from error


def write_profile(profile: Spec, path: str | os.PathLike[str]) -> Path:
    """Write a profile atomically. Raises StoreError if it cannot be written."""
    return write_text(Path(path), WRITTEN + yaml_text(profile))
