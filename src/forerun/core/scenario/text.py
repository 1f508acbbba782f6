"""Strict reading of YAML, JSON and TOML into plain data, with the line of every value.

Plain YAML readers accept what people did not mean: a key given twice, `no` for False, `12:30:45` for 45045, aliases
that unfold into billions of nodes. Here a duplicate key, an alias, an anchor, a tag, a second document and nesting
beyond a fixed depth are errors; `true`, `false` and `null` are the only words with a meaning, and everything that is
not a plain number is text. JSON is read by the same rules. TOML goes through the standard library.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from forerun.core.errors import ForerunError, Problem, ScenarioError
from forerun.core.regular import read_regular, unreadable
from forerun.core.units import whole_number

MAX_BYTES: Final = 8 * 1024 * 1024
MAX_DEPTH: Final = 40
MAX_NODES: Final = 400_000

Place = tuple[str | int, ...]
Scalar = str | int | float | bool | None

_INT: Final = re.compile(r"[-+]?(0|[1-9][0-9]*(_[0-9]+)*)\Z")
_FLOAT: Final = re.compile(r"[-+]?([0-9][0-9_]*\.[0-9]*|\.[0-9]+|[0-9][0-9_]*)([eE][-+]?[0-9]+)?\Z")
_SPECIAL: Final = {".inf": math.inf, "+.inf": math.inf, "-.inf": -math.inf, ".nan": math.nan}
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_WORDS: Final = {"true": True, "false": False, "null": None, "~": None, "": None}


@dataclass(frozen=True)
class Document:
    """Plain data of one file: `data`, and `lines`, the 1-based line of each place where it is known."""

    name: str
    data: Any
    lines: dict[Place, int] = field(default_factory=dict)

    def where(self, place: Place) -> str:
        """`file:line: at $.a.b[2]` for messages; the line of the nearest enclosing place that has one."""
        path = path_text(place)
        known = place
        while known and known not in self.lines:
            known = known[:-1]
        line = f":{self.lines[known]}" if known in self.lines else ""
        return f"{self.name}{line}" + (f": at {path}" if place else "")


def step_of(part: str) -> str | int:
    """One step of a path as people write it: a position if it is digits, else a key."""
    number = whole_number(part)
    return part if number is None else number


def path_text(place: Place) -> str:
    """`$.stages[1].batch` for ("stages", 1, "batch")."""
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)


def refuse_other(document: Document, wanted: str) -> None:
    """Raise ScenarioError for a document that a command of forerun wrote and that is not what is wanted.

    Parameters
    ----------
    document : a plan, a comparison and the like say their format; what has a domain is a scenario, or has one.
    wanted : such as `a scenario`.
    """
    data = document.data if isinstance(document.data, dict) else {}
    stated = data.get("format", data.get("schema"))
    if isinstance(stated, str) and stated.startswith("forerun") and "domain" not in data:
        raise ScenarioError.at(document.where(()), f"is a document of forerun, {stated}, not {wanted}")


def read_document(path: Path) -> Document:
    """The plain data of a scenario file, by its suffix: .yaml .yml .json .toml.

    Raises ScenarioError for a file that is absent, a folder, too large, of an unknown kind, not UTF-8 or malformed.
    """
    name = str(path)
    return parse_document(_read_text(path), name=name, kind=path.suffix.lower())


def parse_document(text: str, *, name: str, kind: str) -> Document:
    """The plain data of a scenario text of a kind (".yaml", ".json", ".toml")."""
    if not text.strip():
        raise ScenarioError.at(name, "the file is empty; a scenario begins with `domain: ...`")
    readers: dict[str, Callable[[str, str], Document]] = {
        ".toml": _parse_toml, ".json": _parse_json,
        ".yaml": lambda text, name: _YamlReader(name).read(text), ".yml": lambda text, name: _YamlReader(name).read(text),
    }  # fmt: skip
    if kind in readers:
        return _without_lone_surrogates(readers[kind](text, name))
    raise ScenarioError.at(name, f"a scenario ends in .yaml, .yml, .json or .toml, not {kind or 'nothing'!r}")


def parse_yaml_documents(text: str, *, name: str, most_values: int = MAX_NODES) -> list[Document]:
    """The plain data of every document of a YAML text, as strictly as a scenario file is read; empty ones are left out.

    Parameters
    ----------
    text, name : what is read, and what messages call it.
    most_values : more are an error.
    """
    documents = []
    for events, reader in _YamlReader(name, most_values).split(text):
        document = reader.document(text, events)
        if document.data is not None:
            documents.append(_without_lone_surrogates(document))
    return documents


def parse_scalar(text: str) -> Scalar:
    """A plain scalar as this reader understands it: true/false/null, numbers, else the text itself."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.match(text) and len(text) <= 40:
        return int(text.replace("_", ""))
    if _FLOAT.match(text):
        return float(text.replace("_", ""))
    return _SPECIAL.get(text.lower(), text)


def _read_text(path: Path) -> str:
    """The text of a file. Raises ScenarioError for one that is absent, too large, not UTF-8 or has a NUL byte."""
    try:
        raw = read_regular(path, most_bytes=MAX_BYTES)
    except FileNotFoundError:
        raise ScenarioError.at(path, "no such file") from None
    except OSError as error:
        raise ScenarioError.at(path, unreadable(error)) from error
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ScenarioError.at(path, "is encoded as UTF-16; save it as UTF-8")
    if b"\0" in raw:
        place = raw.index(0)
        line = raw.count(b"\n", 0, place) + 1
        raise ScenarioError.at(f"{path}:{line}", f"has a NUL byte at offset {place}; a text file is wanted")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise ScenarioError.at(f"{path}:{line}", f"byte {error.start} is not UTF-8") from error


def _without_lone_surrogates(document: Document) -> Document:
    r"""The document, unless a text in it cannot be written as UTF-8, such as the escape `\ud800`: half a character."""
    problems = []
    waiting: list[tuple[Place, Any]] = [((), document.data)]
    while waiting:
        place, value = waiting.pop()
        if isinstance(value, dict):
            waiting.extend(((*place, key), item) for key, item in value.items())
            texts = list(value)
        elif isinstance(value, list):
            waiting.extend(((*place, i), item) for i, item in enumerate(value))
            texts = []
        else:
            texts = [value] if isinstance(value, str) else []
        for text in texts:
            if match := _SURROGATE.search(text):
                what = f"has the escape \\u{ord(match[0]):04x}, which is half a character"
                problems.append(Problem(document.where(place), what))
    if problems:
        raise ScenarioError(*reversed(problems))
    return document


class _Places:
    """The line of every value of a text, from its tokens; `document` is called once a parser has accepted the text."""

    def __init__(self, pattern: re.Pattern[str], text: str, name: str) -> None:
        self.tokens: list[str] = [*pattern.findall(text), ""]
        self.name = name
        self.lines: dict[Place, int] = {}
        self.at = 0
        self.line = 1

    def peek(self) -> str:
        """The next token, empty at the end."""
        return self.tokens[self.at]

    def take(self) -> str:
        """The next token, passed over; `line` is where the one after it begins."""
        token = self.tokens[self.at]
        self.line += token.count("\n")
        self.at += 1
        return token

    def beyond_lines(self) -> str:
        """The next token that is no end of a line and no comment."""
        while self.peek() == "\n" or self.peek().startswith("#"):
            self.take()
        return self.peek()

    def refuse_depth(self) -> None:
        """Raise ScenarioError, with the line, for nesting that a recursive parser would not survive."""
        depth, line = 0, 1
        for token in self.tokens:
            depth += (token in ("[", "{")) - (token in ("]", "}"))
            if depth > MAX_DEPTH:
                raise ScenarioError.at(f"{self.name}:{line}", f"is nested deeper than {MAX_DEPTH} levels")
            line += token.count("\n")

    def value(self, place: Place) -> None:
        """Note the lines of the value that comes next, and of everything in it."""
        self.beyond_lines()
        self.lines.setdefault(place, self.line)
        first, index = self.take(), 0
        if first in ("[", "{"):
            keys: set[str] = set()
            while (mark := self.beyond_lines()) not in ("]", "}"):
                if mark == ",":
                    self.take()
                    index += 1
                elif first == "[":
                    self.value((*place, index))
                else:
                    self.pair(place, keys)
            self.take()
            return
        # A date and its time may stand apart.
        while self.peek() not in ("", "\n", ",", "]", "}") and not self.peek().startswith("#"):
            self.take()

    def pair(self, outer: Place, keys: set[str]) -> None:
        """Note the lines of a key and its value in the section at `outer`. keys: those that it has so far."""
        raise AssertionError(f"{type(self).__name__} does not say how it reads a pair")


_JSON_TOKEN: Final = re.compile(r'\n|"(?:[^"\\]|\\.)*+"?|[][{},:]|[^][{},:"\s]+', re.DOTALL)


def _parse_json(text: str, name: str) -> Document:
    """The document of a JSON text, read by the rules of YAML: no key twice, no deep nesting."""
    places = _JsonPlaces(_JSON_TOKEN, text, name)
    places.refuse_depth()
    try:
        data = json.loads(text, parse_int=parse_scalar)
    except json.JSONDecodeError as error:
        raise ScenarioError.at(
            f"{name}:{error.lineno}", f"is not JSON: {error.msg} at column {error.colno}"
        ) from error
    places.value(())
    if places.problems:
        raise ScenarioError(*places.problems)
    return Document(name, data, places.lines)


class _JsonPlaces(_Places):
    """The line of every value of a JSON text, and the keys that stand twice in one object."""

    def __init__(self, pattern: re.Pattern[str], text: str, name: str) -> None:
        super().__init__(pattern, text, name)
        self.problems: list[Problem] = []

    def pair(self, outer: Place, keys: set[str]) -> None:
        key = json.loads(self.take())
        if key in keys:
            self.problems.append(Problem(f"{self.name}:{self.line}", f"the key {key!r} is given twice"))
        keys.add(key)
        self.beyond_lines()
        self.take()  # the colon
        self.value((*outer, key))


_TOML_TOKEN: Final = re.compile(
    r"""\n|\#[^\n]*|\"\"\"(?:[^"\\]|\\.|"(?!""))*+(?:"{3,5})?|'''(?:[^']|'(?!''))*+(?:'{3,5})?"""
    r"""|"(?:[^"\\\n]|\\.)*+"?|'[^'\n]*'?|[][{},=]|[^][{},="'\#\s]+""",
    re.DOTALL,
)
_TOML_FAULT: Final = re.compile(
    r"(?P<what>.*) \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)", re.DOTALL
)
_MOST_DIGITS: Final = 1000


def _parse_toml(text: str, name: str) -> Document:
    """The document of a TOML text; what would bring the parser down is rejected before."""
    places = _TomlPlaces(_TOML_TOKEN, text, name)
    places.refuse_depth()
    places.refuse_long_tokens()
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _toml_fault(error, text, name) from error
    except ValueError as error:  # digits that `int` rejects, a day that no month has
        raise ScenarioError.at(name, f"is not TOML: {error}") from error
    places.document()
    return Document(name, _plain_toml(data), places.lines)


def _toml_fault(error: tomllib.TOMLDecodeError, text: str, name: str) -> ForerunError:
    """What the parser says, with its line where a line stands in other messages."""
    said = _TOML_FAULT.fullmatch(str(error))
    if said is None:
        return ScenarioError.at(name, f"is not TOML: {error}")
    line = said["line"] or text.rstrip().count("\n") + 1
    column = f" at column {said['column']}" if said["column"] else " at the end of the file"
    return ScenarioError.at(f"{name}:{line}", f"is not TOML: {said['what']}{column}")


def _plain_toml(value: Any) -> Any:
    """TOML's values as those of YAML and JSON: dates are text, whole numbers beyond 40 digits are not exact."""
    if isinstance(value, dict):
        return {key: _plain_toml(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain_toml(item) for item in value]
    if isinstance(value, int) and abs(value) >= 10**40:
        return float(value) if abs(value) < 10**308 else math.inf if value > 0 else -math.inf
    return value if isinstance(value, (int, float, str)) else str(value)


class _TomlPlaces(_Places):
    """The line of every table and value of a TOML text."""

    def __init__(self, pattern: re.Pattern[str], text: str, name: str) -> None:
        super().__init__(pattern, text, name)
        self.lines[()] = 1
        self._elements: dict[Place, int] = {}

    def refuse_long_tokens(self) -> None:
        """Raise ScenarioError, with the line, for dotted keys and numbers that the parser does not survive."""
        dots, line = 0, 1
        for mark in self.tokens:
            if mark in ("\n", "[", "{", "]", "}", ",", "="):
                dots = 0
            elif not mark.startswith(("#", '"', "'")):
                dots += mark.count(".")
                if dots >= MAX_DEPTH:
                    raise ScenarioError.at(f"{self.name}:{line}", f"is nested deeper than {MAX_DEPTH} levels")
                if len(mark) > _MOST_DIGITS and not mark.strip("+-_0123456789abcdefoxABCDEF"):
                    what = f"a number of {len(mark)} digits; at most {_MOST_DIGITS} are read"
                    raise ScenarioError.at(f"{self.name}:{line}", what)
            line += mark.count("\n")

    def document(self) -> None:
        """Record the line of every value in the text."""
        table: Place = ()
        while mark := self.beyond_lines():
            if mark == "[":
                table = self._header()
            else:
                self.pair(table, set())

    def _header(self) -> Place:
        """The place of the table whose header begins here, `[a.b]` or `[[a.b]]`."""
        line = self.line
        self.take()
        several = self.peek() == "["
        if several:
            self.take()
        place: Place = ()
        for key in self._keys("]"):
            # A table below an array of tables belongs to its last element.
            place = (*place, self._elements[place] - 1, key) if place in self._elements else (*place, key)
        if several:
            self.take()
            self.lines.setdefault(place, line)
            self._elements[place] = self._elements.get(place, 0) + 1
        if place in self._elements:
            place = (*place, self._elements[place] - 1)
        self.lines.setdefault(place, line)
        return place

    def pair(self, outer: Place, keys: set[str]) -> None:
        # The parser has rejected keys that stand twice: `a.b` and `a.c` share the section `a`.
        line = self.line
        place = outer
        for key in self._keys("="):
            place = (*place, key)
            self.lines.setdefault(place, line)
        self.value(place)

    def _keys(self, end: str) -> list[str]:
        """The parts of a dotted key, quotes taken off, up to the token `end`, which is taken too."""
        parts: list[str] = []
        while (mark := self.take()) != end:
            if mark.startswith(('"', "'")):
                parts.append(next(iter(tomllib.loads(f"{mark}=0"))))
            else:
                parts.extend(part for part in mark.split(".") if part)
        return parts


class _YamlReader:
    """Builds plain data from YAML's event stream, without recursion."""

    def __init__(self, name: str, most_values: int = MAX_NODES) -> None:
        self.name = name
        self.most_values = most_values
        self.lines: dict[Place, int] = {}
        self.problems: list[Problem] = []

    def split(self, text: str) -> Iterator[tuple[Iterator[Any], _YamlReader]]:
        """The events of each document of a text, with a reader for it; each must be read before the next is asked for."""
        events = self._checked(text, self._events(text))
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                yield (
                    itertools.takewhile(lambda one: not isinstance(one, yaml.DocumentEndEvent), events),
                    _YamlReader(self.name, self.most_values),
                )

    def read(self, text: str) -> Document:
        """The document of a YAML text. Raises ScenarioError with every key that stands twice, or for what is not
        YAML.
        """
        return self.document(text, self._events(text))

    def document(self, text: str, events: Iterator[Any]) -> Document:
        """The document that some events of a text are; as `read`."""
        data = self._build(self._checked(text, events))
        if self.problems:
            raise ScenarioError(*self.problems)
        return Document(self.name, data, self.lines)

    def _checked(self, text: str, events: Iterator[Any]) -> Iterator[Any]:
        """The events of a text. Raises ScenarioError where it is not YAML."""
        try:
            yield from events
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            where = f"{self.name}:{mark.line + 1}" if mark else self.name
            raise ScenarioError.at(where, f"is not YAML: {error.problem or error.context}") from error
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            what = f"has the character U+{ord(text[error.position]):04X}, which YAML does not allow"
            raise ScenarioError.at(f"{self.name}:{line}", what) from error

    def _events(self, text: str) -> Iterator[Any]:
        """The parser's events; an escape that names no character is a ScenarioError."""
        loader: Any = yaml.SafeLoader(text)
        try:
            while loader.check_event():
                yield loader.get_event()
        except (ValueError, OverflowError) as error:
            # The scanner stands at the escape that names no character.
            where = f"{self.name}:{loader.line + 1}"
            raise ScenarioError.at(where, f"is not YAML: an escape names no character ({error})") from error
        finally:
            loader.dispose()

    def _build(self, events: Any) -> Any:
        """Plain data from the events of one document."""
        root: list[Any] = []
        # Each open collection: (container, place, pending key or None)
        stack: list[tuple[Any, Place]] = [(root, ())]
        keys: list[Any] = [None]
        documents = nodes = 0
        for event in events:
            line = event.start_mark.line + 1
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise ScenarioError.at(
                        f"{self.name}:{line}", "a second document begins; a file contains one scenario"
                    )
            elif isinstance(event, yaml.AliasEvent):
                raise ScenarioError.at(
                    f"{self.name}:{line}", f"the alias *{event.anchor} is not allowed; write the value out"
                )
            elif isinstance(event, yaml.NodeEvent):
                nodes += 1
                self._refuse(event, line, nodes, len(stack))
                self._node(event, line, stack, keys)
            elif isinstance(event, yaml.CollectionEndEvent):
                stack.pop()
                keys.pop()
        return root[0] if root else None

    def _refuse(self, event: Any, line: int, nodes: int, depth: int) -> None:
        """Raise ScenarioError for an anchor, a tag, too many values or too deep nesting."""
        where = f"{self.name}:{line}"
        if event.anchor:
            raise ScenarioError.at(where, f"the anchor &{event.anchor} is not allowed; write the value out")
        if event.tag and event.tag != "!":
            raise ScenarioError.at(where, f"the tag {event.tag!r} is not allowed")
        if nodes > self.most_values:
            raise ScenarioError.at(where, f"the file has more than {self.most_values} values")
        if depth > MAX_DEPTH:
            raise ScenarioError.at(where, f"is nested deeper than {MAX_DEPTH} levels")

    def _node(self, event: Any, line: int, stack: list[tuple[Any, Place]], keys: list[Any]) -> None:
        """Put a value where the innermost open collection wants it; `keys` holds the pending key of each."""
        container, place = stack[-1]
        if isinstance(container, dict) and keys[-1] is None:
            keys[-1] = self._key(event, line, container)
            return
        if isinstance(container, dict):
            here: Place = (*place, keys[-1])
        else:
            here = (*place, len(container)) if len(stack) > 1 else ()
        self.lines[here] = line
        value: Any
        if isinstance(event, yaml.ScalarEvent):
            plain = event.implicit[0] and event.style is None
            value = parse_scalar(event.value) if plain else event.value
        else:
            value = {} if isinstance(event, yaml.MappingStartEvent) else []
        if isinstance(container, dict):
            container[keys[-1]] = value
            keys[-1] = None
        else:
            container.append(value)
        if not isinstance(event, yaml.ScalarEvent):
            stack.append((value, here))
            keys.append(None)

    def _key(self, event: Any, line: int, container: dict[str, Any]) -> str:
        """A key of a section; a key that stands twice is noted as a problem."""
        if not isinstance(event, yaml.ScalarEvent):
            raise ScenarioError.at(f"{self.name}:{line}", "a key must be plain text")
        key: str = event.value
        if key in container:
            self.problems.append(Problem(f"{self.name}:{line}", f"the key {key!r} is given twice"))
        return key
