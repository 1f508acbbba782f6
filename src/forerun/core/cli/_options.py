"""Options that several commands share, and what they give a command: `Asked` and `Output`."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from forerun.core.cli import _show
from forerun.core.compiling import watched

F = TypeVar("F", bound=Callable[..., Any])

#: the type of arguments and options that name a file or a folder
PATH = click.Path(path_type=Path)


class Number(click.FloatRange):
    """A finite number in a range. Comparisons say of nan that it is neither below nor above, so click takes it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number that a text stands for."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


if TYPE_CHECKING:
    _Several = click.ParamType[tuple[int, ...]]
else:  # not every release has it generic
    _Several = click.ParamType


class _Counts(_Several):
    """Numbers of GPUs, separated by commas."""

    name = "N,N,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """The counts, each once, in their order."""
        if isinstance(value, tuple):
            return value
        words = str(value).split(",")
        if not all(word.strip().isdecimal() and len(word) < 10 and int(word) > 0 for word in words):
            self.fail(f"{value!r} is no list of GPU counts from 1, such as 32,40,48", param, ctx)
        return tuple(dict.fromkeys(map(int, words)))


#: the type of options that take several numbers of GPUs
COUNTS = _Counts()

set_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="A.B=C",
    help="Override one value of the scenario; repeatable.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON to stdout.")
workers_option = click.option(
    "--workers", "-j", default=1, show_default=True, type=click.IntRange(min=1), help="Number of processes."
)
quiet_option = click.option("--quiet", "-q", is_flag=True, help="Print no progress and no hints.")


#: the setting that `--accept-fit` stands for
ACCEPTED = "accept_fit=true"
accept_fit_option = click.option(
    "--accept-fit",
    is_flag=True,
    help=f"Use fitted costs of language models that miss their own data; same as --set {ACCEPTED}.",
)


def path_option(*names: str, metavar: str, help: str, **others: Any) -> Callable[[F], F]:
    """An option that names a file or a folder; the command gets a `Path`.

    Parameters
    ----------
    names : of the option, and of the command's parameter if it differs.
    metavar : what the help shows for the value.
    help : the line in the command's help.
    others : further arguments of `click.option`.
    """
    return click.option(*names, type=PATH, metavar=metavar, help=help, **others)


def out_option(metavar: str, help: str, **others: Any) -> Callable[[F], F]:
    """`-o`, `--out`: where to write; the command gets it as `out`.

    Parameters
    ----------
    metavar : what the help shows for the value.
    help : the line in the command's help.
    others : further arguments of `click.option`, such as `required`.
    """
    return path_option("-o", "--out", "out", metavar=metavar, help=help, **others)


@dataclass(frozen=True)
class Output:
    """How a command prints.

    Parameters
    ----------
    as_json : print JSON, for programs.
    quiet : print no progress and no hints.
    """

    as_json: bool
    quiet: bool

    @property
    def silent(self) -> bool:
        """Whether nothing is printed while the command works."""
        return self.as_json or self.quiet

    def working(self, message: str) -> AbstractContextManager[Callable[[str], None]]:
        """A status line on stderr while something takes its time; see `_show.working`.

        Parameters
        ----------
        message : what is being done, such as `reading a.csv`. With `--json` or `--quiet` it is not shown.
        """
        return _show.working(message, quiet=self.silent)

    def hint(self, text: str) -> None:
        """Print what to do next, unless quiet."""
        if not self.quiet:
            _show.prose(text)


@dataclass(frozen=True)
class Asked:
    """The scenario that a command is about.

    Parameters
    ----------
    path : its file.
    overrides : changes as `path=value`, from `--set`.
    seed : instead of the scenario's own; None for its own.
    """

    path: Path
    overrides: tuple[str, ...]
    seed: int | None

    def load(self, *more: str) -> Any:
        """The scenario, resolved.

        Parameters
        ----------
        more : overrides that come after those asked for, and so win over them.

        Raises
        ------
        ScenarioError : the file or an override is wrong.
        """
        from forerun.core.scenarios import load

        return load(self.path, (*self.overrides, *more), seed=self.seed)

    def words(self, *more: str) -> str:
        """The same scenario and changes as words of a command, quoted for a shell.

        Parameters
        ----------
        more : overrides after those asked for.
        """
        return _show.as_asked(self.path, (*self.overrides, *more), self.seed)


def output_options(function: F) -> F:
    """`--json` and `--quiet`, as one argument `output`, an `Output`. Unless one is given, the command says when it compiles.

    Parameters
    ----------
    function : of the command, which need not know the two options.
    """

    @functools.wraps(function)
    def called(*args: Any, as_json: bool, quiet: bool, **others: Any) -> Any:
        output = Output(as_json, quiet)
        with nullcontext() if output.silent else watched(_show.say_compiling):
            return function(*args, output=output, **others)

    return cast(F, json_option(quiet_option(called)))


def scenario_options(function: F) -> F:
    """A scenario file, `--set`, `--ignore`, `--seed`, as one argument `asked`; `--json` and `--quiet` as `output`.

    Parameters
    ----------
    function : of the command; it takes `asked`, an `Asked`, and `output`, an `Output`.
    """

    @functools.wraps(function)
    def called(
        *args: Any,
        scenario: Path,
        overrides: tuple[str, ...],
        ignored: tuple[str, ...],
        seed: int | None,
        **others: Any,
    ) -> Any:
        if ignored:
            overrides = (*overrides, f"machines.ignore=[{', '.join(ignored)}]")
        return function(*args, asked=Asked(scenario, overrides, seed), **others)

    made: Any = output_options(cast(F, called))
    for option in (
        click.option("--seed", type=click.IntRange(min=0), help="Seed to use instead of the scenario's."),
        click.option(
            "--ignore",
            "ignored",
            multiple=True,
            metavar="NAME",
            help="Leave out a part of a site's files; same as --set machines.ignore=[NAME]; repeatable.",
        ),
        set_option,
        click.argument("scenario", type=PATH, metavar="SCENARIO"),
    ):
        made = option(made)
    return cast(F, made)


def decider_options(function: F) -> F:
    """`--decider`, its lesser options and the words after `--`, as one argument `decider`: a `Program`, or None.

    Parameters
    ----------
    function : of the command.
    """

    @functools.wraps(function)
    def called(
        *args: Any, decides: bool, oracle: bool, answer_s: float | None, words: tuple[str, ...], **others: Any
    ) -> Any:
        from forerun.core.domain import Program
        from forerun.core.errors import UsageError

        if words and not decides:
            raise click.UsageError(f"Got unexpected extra argument ({' '.join(words)})")
        if (oracle or answer_s is not None) and not decides:
            option = "--oracle" if oracle else "--answer-within"
            raise UsageError.at(option, "is for --decider -- PROGRAM ARGUMENTS...")
        if decides and not words:
            raise UsageError.at("--decider", "needs a program: --decider -- PROGRAM ARGUMENTS...")
        decider = Program(words, oracle, answer_s) if decides else None
        return function(*args, decider=decider, **others)

    made: Any = called
    for option in (
        click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[-- PROGRAM ARGUMENTS...]"),
        click.option(
            "--answer-within",
            "answer_s",
            type=Number(min=0, min_open=True),
            metavar="SECONDS",
            help="With --decider: the run ends if an answer takes longer [default: 60].",
        ),
        click.option("--oracle", is_flag=True, help="With --decider: also show it how long jobs take."),
        click.option(
            "--decider",
            "decides",
            is_flag=True,
            help="PROGRAM decides in the place of the policy, in JSON lines (examples/deciders/README.md).",
        ),
    ):
        made = option(made)
    return cast(F, made)
