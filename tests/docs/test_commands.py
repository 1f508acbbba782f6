"""Every command that the documents name exists: its verb, its options, its ids, its make targets.

Lines of `console` blocks are also run (`test_documents.py` and the tests named there); commands in a sentence,
in an indented block or in a block of another kind are only compared with the command line's verbs and options here.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from forerun.core.cli.main import forerun_command
from forerun.core.domain import domain_names
from forerun.core.slices import wings
from forerun.replication.reproductions import reproductions

from .claims import folded
from .test_documents import DOCUMENTS, ROOT

#: a command, from its first word on
COMMAND = re.compile(r"(?:\.venv/bin/)?(?:forerun|make|python -m|pip install) .+")
ANY_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: words that stand for what the reader puts there
BLANK = re.compile(r"[A-Z][A-Z_]*(?:\.\w+)?$")


def commands(path: Path) -> Iterator[str]:
    """Every command of a document, wherever it stands."""
    text = path.read_text(encoding="utf-8")
    for kind, block in ANY_BLOCK.findall(text):
        if kind not in {"python", "yaml", "csv"}:
            lines = (line.removeprefix("$ ") for line in block.splitlines())
            yield from (line for line in lines if COMMAND.fullmatch(line))
    prose = ANY_BLOCK.sub("", text)
    yield from (line for line in re.findall(r"^    (\S.*)$", prose, re.MULTILINE) if COMMAND.fullmatch(line))
    yield from (
        line
        for line in map(folded, re.findall(r"`([^`]+)`", prose))
        if COMMAND.fullmatch(line) and "\n" not in line
    )


NAMED = sorted({line for path in DOCUMENTS for line in commands(path)})


@pytest.mark.parametrize("line", NAMED)
def test_a_command_that_is_named_exists(line: str) -> None:
    for one in spelled_out(re.split(r"\s+#", line)[0]):
        words = shlex.split(one)
        if words[0] == "make":
            assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), one
        elif words[:2] == ["python", "-m"]:
            module = ROOT.joinpath(*words[2].split("."))
            assert module.with_suffix(".py").is_file() or (module / "__main__.py").is_file(), one
        elif words[0] == "pip":
            extras = re.search(r"\[(\w+)\]", words[-1])
            pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
            assert (ROOT / words[-1]).exists() or (
                extras and re.search(rf"^{extras[1]} = \[", pyproject, re.M)
            ), one
        else:
            parsed(words[1:])


def spelled_out(line: str) -> Iterator[str]:
    """`a && b` one by one, `a b | c d` with each alternative of its word, what is in brackets as if it stood there."""
    for part in re.sub(r"[\[\]](?=-|$|\s)|(?<=\s)\[", "", line).split(" && "):
        choices: list[list[str]] = []
        words = iter(shlex.split(part))
        for word in words:
            if word == "|":
                choices[-1].append(next(words))
            else:
                choices.append([word])
        yield from (shlex.join(chosen) for chosen in itertools.product(*choices))


def parsed(words: list[str]) -> None:
    """Fails unless the verb is there and takes these options; ids of results and names of domains are known."""
    command: click.Command = forerun_command
    context = click.Context(command)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        assert found is not None, f"no verb {words[0]}"
        command, words = found, words[1:]
    words = words[: words.index("--")] if "--" in words else words  # what follows is another program's
    options = {opt: one for one in command.params for opt in (*one.opts, *one.secondary_opts)}
    for at, word in enumerate(words):
        if word.startswith("-"):
            name, _, value = word.partition("=")
            assert name in options, f"{command.name} has no option {name}"
            value = value or "".join(words[at + 1 : at + 2])
            kind = options[name].type
            if isinstance(kind, click.Choice) and value and not BLANK.match(value):
                assert value in kind.choices, f"{name} {value}"
    if command.name == "reproduce":
        known = {entry.id for entry in reproductions()}
        assert {word for word in words if re.fullmatch(r"[a-z]\w*(?:-\w+)+", word)} <= known, words
    if command.name in {"docs", "schema", "policies", "demo"}:
        wings_too = {folder.name for folder in wings()} if command.name == "demo" else set()
        known = {*domain_names(), *wings_too}
        assert {word for word in words[:1] if re.fullmatch(r"[a-z]+", word)} <= known, words


def every_option(command: click.Command) -> set[str]:
    """The options of a command and of all below it."""
    found = {opt for one in command.params for opt in (*one.opts, *one.secondary_opts)}
    if isinstance(command, click.Group):
        context = click.Context(command)
        below = [command.get_command(context, name) for name in command.list_commands(context)]
        found.update(*(every_option(one) for one in below if one))
    return found


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_an_option_that_is_named_exists(path: Path) -> None:
    """In code of a sentence and in the comments of blocks: of any verb, or of a benchmark."""
    scripts = "".join(one.read_text(encoding="utf-8") for one in (ROOT / "benchmarks").rglob("*.py"))
    ours = set(re.findall(r'"(--[a-z][a-z-]*)"', scripts))
    text = path.read_text(encoding="utf-8")
    said = [
        *re.findall(r"`([^`\n]+)`", ANY_BLOCK.sub("", text)),
        *re.findall(r"^(?:\$ )?forerun .*$", text, re.MULTILINE),
    ]
    named = {option for piece in said for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", piece)}
    assert named <= every_option(forerun_command) | ours, sorted(named - every_option(forerun_command) - ours)


def test_what_does_not_exist_is_found() -> None:
    for line in (
        "forerun simulte x.yaml",
        "forerun plan --frontyard",
        "forerun reproduce ef-fig99",
        "make tea",
    ):
        with pytest.raises((AssertionError, click.ClickException)):
            test_a_command_that_is_named_exists(line)
    assert len(NAMED) > 80
