"""The `forerun` command: runs its subcommands and turns errors into messages and exit codes.

Exit codes: 0 ok, 1 a bug in forerun, 2 bad usage or input, 3 infeasible, 4 a check failed, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Sequence
from typing import Final

import click

from forerun.core.cli import INTERRUPTED, INTERRUPTED_CODE
from forerun.core.cli._found import Found
from forerun.core.errors import ForerunError, suggestion
from forerun.core.slices import verbs
from forerun.core.version import VERSION

#: the code with which click exits, for no other reason in this mode, where the pipe that a command writes to is closed
_CLICK_CLOSED_PIPE: Final = 1
#: how many problems of one command are printed
_MOST_PROBLEMS: Final = 20
#: how Python reads bytes of a file's name that are no UTF-8
_UNDECODED: Final = re.compile("[\udc80-\udcff]+")


class Verbs(Found):
    """The subcommands of the command line."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As in click, with a suggestion if the subcommand does not exist.

        Raises
        ------
        click.UsageError : no subcommand has this name.
        """
        if args and not args[0].startswith("-") and args[0] not in self.list_commands(ctx):
            known = self.list_commands(ctx)
            hint = suggestion(args[0], known)
            raise click.UsageError(f"no command named {args[0]!r}; {hint}known: {', '.join(known)}")
        return super().resolve_command(ctx, args)


@click.command(
    cls=Verbs,
    modules=verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(VERSION, prog_name="forerun", message="%(prog)s %(version)s")
def forerun_command() -> None:
    """Run it before you run it: simulate and plan ML systems from traces and measured profiles."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; errors go to stderr, one line per problem.

    Errors of forerun and of click, running out of memory, interrupts, closed pipes and failures of the system are turned
    into messages and codes. Anything else is a bug and is raised.

    Parameters
    ----------
    arguments : the words after `forerun` (default: those of this process).
    """
    try:
        code = forerun_command.main(args=arguments, prog_name="forerun", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except ForerunError as error:
        lines = error.lines()
        for line in lines[:_MOST_PROBLEMS]:
            click.echo(f"forerun: {line}", err=True)
        if (more := len(lines) - _MOST_PROBLEMS) > 0:
            click.echo(f"forerun: and {more:,} more", err=True)
        return error.exit_code
    except click.ClickException as error:
        message = " ".join(error.format_message().split())
        click.echo(f"forerun: {message}", err=True)
        context = getattr(error, "ctx", None)
        if context is not None:
            click.echo(f"Try '{context.command_path} --help'.", err=True)
        return 2
    except MemoryError as error:
        # A typing error, such as an extra zero, can ask for more memory than there is; that is not a bug.
        click.echo(f"forerun: {' '.join(f'not enough memory {error}'.split())}; ask for less", err=True)
        return 2
    except (click.Abort, KeyboardInterrupt) as error:
        if isinstance(
            error.__cause__, EOFError
        ):  # which click takes for the end of an answer; nothing is asked here
            raise error.__cause__ from None
        click.echo(INTERRUPTED, err=True)
        return INTERRUPTED_CODE
    except BrokenPipeError:
        # Whatever reads our output has closed it (`forerun ... | head`); that is not an error.
        _silence()
        return 0
    except SystemExit as leaving:
        if leaving.code != _CLICK_CLOSED_PIPE:
            raise
        _silence()
        return 0
    except UnicodeEncodeError as error:
        letters = error.object[error.start : error.end]
        if error.encoding != "utf-8":
            advice = "a UTF-8 locale (or PYTHONUTF8=1) can write every name"
        elif _UNDECODED.fullmatch(letters):
            advice = "it stands for bytes in a name of a file that are no UTF-8: rename the file"
        else:
            raise
        click.echo(f"forerun: {letters!a} cannot be written as {error.encoding}; {advice}", err=True)
        return 2
    except OSError as error:
        # The system failed in a way that no command handles: stdout on a full disk, a deleted working folder.
        _silence()
        where = f"{error.filename}: " if error.filename else ""
        click.echo(f"forerun: {where}{error.strerror or error}", err=True)
        return 2


def _silence() -> None:
    """Discard the rest of stdout, which cannot be written."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
