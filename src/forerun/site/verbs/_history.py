"""Options that say how to read the history of a queue."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import click

from forerun.site.reading import Reading

F = TypeVar("F", bound=Callable[..., Any])


def reading_options(function: F) -> F:
    """`--format`, `--columns`, `--zone`, as one argument `reading`, a `Reading`."""

    @functools.wraps(function)
    def called(*args: Any, format: str, columns: tuple[str, ...], zone: str, **others: Any) -> Any:
        return function(*args, reading=Reading(format, columns, zone), **others)

    made: Any = called
    for option in (
        click.option(
            "--zone",
            default="UTC",
            show_default=True,
            metavar="PLACE",
            help="Whose clock times are on that name no zone.",
        ),
        click.option(
            "--columns",
            multiple=True,
            metavar="OURS=THEIRS",
            help="Where a column of the log has another name; repeatable.",
        ),
        click.option(
            "--format", default="", metavar="NAME", help="Format of the log (default: by its content)."
        ),
    ):
        made = option(made)
    return cast(F, made)
