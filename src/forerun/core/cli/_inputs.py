"""No command writes over what it reads: its own arguments, and the files that these name; nor over others' documents."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

#: options that name a file to write; every other path of a command is read
OUTPUTS: Final = {"--out", "--report", "--certificate"}

#: suffixes of files that name others
_NAMING: Final = {".yaml", ".yml", ".json", ".toml"}

#: how JSON documents of ours begin
_FORMAT: Final = re.compile(rb'\{\s*"format": "forerun')


@functools.cache
def guarded(command: click.Command) -> click.Command:
    """A command, and its subcommands, with every file that they would write compared with what they read."""
    for child in getattr(command, "commands", {}).values():
        guarded(child)
    inner = command.callback
    if inner is not None and any(OUTPUTS.intersection(param.opts) for param in command.params):

        @functools.wraps(inner)
        def called(*args: Any, **given: Any) -> Any:
            _refuse(click.get_current_context())
            return inner(*args, **given)

        command.callback = called
    return command


def _refuse(ctx: click.Context) -> None:
    """Raise UsageError for an output that is an input, another output, or a document that somebody else wrote."""
    written: dict[Path, str] = {}
    words: list[Any] = []
    for param in ctx.command.params:
        value = ctx.params.get(param.name or "")
        if not (option := OUTPUTS.intersection(param.opts)):
            words += value if isinstance(value, tuple) else [value]
        elif isinstance(value, Path):
            where = f"{option.pop()} {value}"
            if value.absolute() in written:
                raise click.UsageError(f"{where}: is also {written[value.absolute()].split()[0]}")
            written[value.absolute()] = where
    present = {path: where for path, where in written.items() if path.is_file()}
    for read in _read([Path.cwd() / word for word in map(_path, words) if word]):
        for path, where in present.items():
            if os.path.samestat(path.stat(), read.stat()):
                raise click.UsageError(f"{where}: is read by this command; name another file")
    for path, where in present.items():
        if path.suffix.lower() in _NAMING and not _is_ours(path):
            raise click.UsageError(f"{where}: exists, and forerun did not write it; name another file")


def _is_ours(path: Path) -> bool:
    """Whether a document is one that forerun wrote, or empty."""
    from forerun.core.atomic_write import WRITTEN
    from forerun.core.regular import open_regular

    try:
        with open_regular(path) as file:
            head = file.read(256)
    except OSError:
        return False
    return not head or head.startswith(WRITTEN.encode()) or _FORMAT.match(head) is not None


def _path(word: Any) -> str:
    """What a word of a command may name: a path itself, or after the `=` of an override."""
    return os.fspath(word) if isinstance(word, Path) else str(word or "").rpartition("=")[2]


def _read(waiting: list[Path]) -> Iterator[Path]:
    """The files among paths, those of a run's directory, and those that documents among them name, however deep."""
    from forerun.core.errors import ForerunError
    from forerun.core.scenario.text import read_document

    seen = set()
    while waiting:
        path = waiting.pop()
        try:
            if path in seen or not path.exists():
                continue
        except (OSError, ValueError):  # a word that is no path
            continue
        seen.add(path)
        if (path / "scenario.json").is_file():
            waiting += (one for one in path.iterdir() if one.suffix != ".html")
        if not path.is_file():
            continue
        yield path
        if path.suffix.lower() in _NAMING:
            try:
                waiting += (path.parent / text for text in _texts(read_document(path).data))
            except ForerunError:  # the command says what is wrong with it
                continue


def _texts(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict | list):
        for item in data.values() if isinstance(data, dict) else data:
            yield from _texts(item)
