"""Errors say where, what, and what is known."""

from __future__ import annotations

import inspect

import pytest

from forerun.core import errors
from forerun.core.errors import ForerunError, InputError, Problem, TraceError, UnknownName, known_names

ALL = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, ForerunError)]


def test_one_line_a_problem() -> None:
    error = TraceError(Problem("jobs.csv:3", "submit_s is text"), Problem("jobs.csv:7", "gpus is\n-1"))
    assert str(error).splitlines() == ["jobs.csv:3: submit_s is text", "jobs.csv:7: gpus is -1"]


def test_no_control_character_reaches_the_terminal() -> None:
    assert (
        str(Problem("a\x1b[31m.csv", "held\u2028back\x07, Größe")) == "a\\x1b[31m.csv: held back\\x07, Größe"
    )


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_error_has_an_exit_code_and_stands_in_the_tree(kind: type[ForerunError]) -> None:
    assert kind.exit_code in {1, 2, 3, 4}
    assert kind.__name__ in (errors.__doc__ or "")
    assert (kind.exit_code == 2) >= issubclass(kind, InputError)


def test_an_error_without_a_problem_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="at least one problem"):
        TraceError()


def test_unknown_names_suggest_the_nearest() -> None:
    error = UnknownName.among("policy", "srft", ["fifo", "srtf", "las"])
    assert str(error) == "no policy named 'srft'; did you mean 'srtf'? known: fifo, las, srtf"
    assert known_names("x", []) == "none are known"


def test_a_word_of_thousands_of_characters_is_cut() -> None:
    text = str(Problem("jobs.csv:2", f"submit_time is '{'9' * 5000}', a number is wanted"))
    assert text.startswith("jobs.csv:2: submit_time is '999") and text.endswith(
        "... (5003 characters) a number is wanted"
    )
    assert len(text) < 200
