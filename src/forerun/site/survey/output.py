"""The folder of a survey: its files appear together, and what somebody else put or changed there stays."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from forerun.core.atomic_write import beside, system_reason
from forerun.core.errors import ForerunError, Problem, StoreError
from forerun.core.result.reading import read_document
from forerun.site.survey.document import SITE_FORMAT
from forerun.site.survey.pseudonyms import new_key, read_key

#: the answer as data, which says what else is of this program, and the page
ANSWER: Final = "site.json"
PAGE: Final = "site.html"
KEY: Final = "names.key"


@contextmanager
def building(target: Path) -> Iterator[Path]:
    """A hidden folder beside a folder, gone at the end; errors name the files in it without it.

    target: need not exist. Raises StoreError where no folder can be made.
    """
    made = beside(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        made.mkdir()
    except OSError as error:
        raise StoreError.at(target, f"cannot be written: {error.strerror}") from error
    try:
        yield made
    except ForerunError as error:
        inside = f"{made}{os.sep}"
        raise type(error)(
            *(Problem(one.where.replace(inside, ""), one.what.replace(inside, "")) for one in error.problems)
        ) from None
    finally:
        shutil.rmtree(made, ignore_errors=True)


def earlier(target: Path) -> dict[str, str]:
    """The files of an earlier survey in a folder, with their digests; none where there is none.

    Raises StoreError where the folder holds other files and no survey, or is a file.
    """
    if target.exists() and not target.is_dir():
        raise StoreError.at(target, "is a file; name a folder")
    if not target.exists() or not any(target.iterdir()):
        return {}
    answer = target / ANSWER
    content = read_document(answer) if answer.exists() else {}
    written = content.get("written")
    if content.get("format") != SITE_FORMAT or not isinstance(written, dict):
        raise StoreError.at(
            target, "holds other files; name a new folder, or that of an earlier forerun site"
        )
    return {str(name): str(digest) for name, digest in written.items()}


def key_of(target: Path, given: Path | None) -> bytes:
    """The key of a folder's pseudonyms: the one that is given, else that of an earlier survey, else a new one."""
    if given is not None:
        return read_key(given)
    return read_key(target / KEY) if (target / KEY).exists() else new_key()


def publish(made: Path, target: Path, content: dict[str, Any], key: bytes) -> None:
    """Move all files of a hidden folder into a folder, with the key and the answer, which comes last.

    Raises StoreError, with nothing moved, where a file stands there that is not of an earlier survey or was changed since.
    """
    before = earlier(target)
    names = sorted(path.name for path in made.iterdir())
    written = {name: hashlib.sha256((made / name).read_bytes()).hexdigest() for name in names}
    problems = [
        Problem(str(target / name), why) for name in names if (why := _foreign(target / name, before))
    ]
    if problems:
        raise StoreError(*problems)
    text = json.dumps({**content, "written": written}, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    try:
        target.mkdir(exist_ok=True)
        if key and not (target / KEY).exists():
            descriptor = os.open(made / KEY, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(key + b"\n")
            names.append(KEY)
        (made / ANSWER).write_text(text, encoding="utf-8")
        for name in before.keys() - written.keys():
            with contextlib.suppress(OSError):
                (target / name).unlink()
        for name in (*names, ANSWER):
            (made / name).replace(target / name)
    except Exception as error:
        reason = system_reason(error)
        if reason is None:
            raise
        raise StoreError.at(target, f"cannot be written: {reason}") from error


def _foreign(path: Path, before: dict[str, str]) -> str:
    """Why a file is not replaced; empty: it is."""
    if not os.path.lexists(path):
        return ""
    if path.name not in before:
        return "exists and is not of an earlier forerun site; name another folder"
    try:
        same = path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == before[path.name]
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return "" if same else "was changed since forerun site wrote it; name another folder"
