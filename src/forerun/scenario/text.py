"""Strict reading of YAML, JSON and TOML into plain data, with the line of every value.

Plain YAML readers accept what people did not mean: a key given twice, `no` for False, `12:30:45` for 45045, aliases
that unfold into billions of nodes. Here a duplicate key, an alias, an anchor, a tag, a second document and nesting
beyond a fixed depth are errors; `true`, `false` and `null` are the only words with a meaning, and everything that is
not a plain number is text. JSON is read by the same rules. TOML goes through the standard library.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from forerun.errors import Problem, ScenarioError

MAX_BYTES: Final = 8 * 1024 * 1024
MAX_DEPTH: Final = 40
MAX_NODES: Final = 400_000

Place = tuple[str | int, ...]

_INT: Final = re.compile(r"[-+]?(0|[1-9][0-9]*(_[0-9]+)*)\Z")
_FLOAT: Final = re.compile(r"[-+]?([0-9][0-9_]*\.[0-9]*|\.[0-9]+|[0-9][0-9_]*)([eE][-+]?[0-9]+)?\Z")
_SPECIAL: Final = {".inf": math.inf, "+.inf": math.inf, "-.inf": -math.inf, ".nan": math.nan}
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


def path_text(place: Place) -> str:
    """`$.stages[1].batch` for ("stages", 1, "batch")."""
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)


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
    if kind == ".toml":
        return Document(name, _parse_toml(text, name))
    if kind in {".yaml", ".yml"}:
        return _YamlReader(name).read(text)
    if kind == ".json":
        return _parse_json(text, name)
    raise ScenarioError.at(name, f"a scenario ends in .yaml, .yml, .json or .toml, not {kind or 'nothing'!r}")


def parse_scalar(text: str) -> Any:
    """A plain scalar as this reader understands it: true/false/null, numbers, else the text itself."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.match(text) and len(text) <= 40:
        return int(text.replace("_", ""))
    if _FLOAT.match(text):
        return float(text.replace("_", ""))
    return _SPECIAL.get(text.lower(), text)


def _read_text(path: Path) -> str:
    if not path.exists():
        raise ScenarioError.at(path, "no such file")
    if path.is_dir():
        raise ScenarioError.at(path, "is a directory; a scenario file is wanted")
    if not path.is_file():
        raise ScenarioError.at(path, "is not a regular file")
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise ScenarioError.at(path, f"has {size} bytes; a scenario has at most {MAX_BYTES}")
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ScenarioError.at(path, f"cannot be read: {error.strerror}") from error
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ScenarioError.at(path, "is encoded as UTF-16; save it as UTF-8")
    if b"\0" in raw:
        raise ScenarioError.at(path, f"has a NUL byte at offset {raw.index(0)}; a text file is wanted")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise ScenarioError.at(f"{path}:{line}", f"byte {error.start} is not UTF-8") from error


def _check_depth(text: str, name: str) -> None:
    # The standard parsers recurse: count brackets outside strings first.
    depth = 0
    in_string = escaped = False
    for position, char in enumerate(text):
        if in_string:
            in_string = escaped or char != '"'
            escaped = char == "\\" and not escaped
        elif char == '"':
            in_string = True
        elif char in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                line = text.count("\n", 0, position) + 1
                raise ScenarioError.at(f"{name}:{line}", f"is nested deeper than {MAX_DEPTH} levels")
        elif char in "]}":
            depth -= 1


def _parse_json(text: str, name: str) -> Document:
    _check_depth(text, name)
    twice: list[str] = []

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        twice.extend(key for key in dict.fromkeys(keys) if keys.count(key) > 1)
        return dict(pairs)

    try:
        data = json.loads(text, object_pairs_hook=unique, parse_int=lambda digits: parse_scalar(digits))
    except json.JSONDecodeError as error:
        raise ScenarioError.at(
            f"{name}:{error.lineno}", f"is not JSON: {error.msg} at column {error.colno}"
        ) from error
    if twice:
        raise ScenarioError(*(Problem(name, f"the key {key!r} is given twice") for key in twice))
    return Document(name, data, _json_lines(text))


def _json_lines(text: str) -> dict[Place, int]:
    # JSON is YAML as far as positions go, but indenting with tabs is not: then lines stay unknown.
    try:
        return _YamlReader("", tolerant=True).read(text).lines
    except ScenarioError:
        return {}


def _parse_toml(text: str, name: str) -> Any:
    _check_depth(text, name)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError.at(name, f"is not TOML: {error}") from error
    except RecursionError as error:
        raise ScenarioError.at(name, f"is nested deeper than {MAX_DEPTH} levels") from error
    return json.loads(json.dumps(data, default=str))


class _YamlReader:
    """Builds plain data from YAML's event stream, without recursion."""

    def __init__(self, name: str, *, tolerant: bool = False) -> None:
        self.name = name
        self.tolerant = tolerant
        self.lines: dict[Place, int] = {}
        self.problems: list[Problem] = []

    def read(self, text: str) -> Document:
        try:
            data = self._build(yaml.parse(text, Loader=yaml.SafeLoader))
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            where = f"{self.name}:{mark.line + 1}" if mark else self.name
            raise ScenarioError.at(where, f"is not YAML: {error.problem or error.context}") from error
        except yaml.YAMLError as error:
            raise ScenarioError.at(self.name, f"is not YAML: {' '.join(str(error).split())}") from error
        except RecursionError as error:
            raise ScenarioError.at(self.name, f"is nested deeper than {MAX_DEPTH} levels") from error
        if self.problems:
            raise ScenarioError(*self.problems)
        return Document(self.name, data, self.lines)

    def _build(self, events: Any) -> Any:
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
                        f"{self.name}:{line}", "a second document begins; one file holds one scenario"
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
        where = f"{self.name}:{line}"
        if event.anchor:
            raise ScenarioError.at(where, f"the anchor &{event.anchor} is not allowed; write the value out")
        if event.tag and event.tag != "!":
            raise ScenarioError.at(where, f"the tag {event.tag!r} is not allowed")
        if nodes > MAX_NODES:
            raise ScenarioError.at(where, f"the file has more than {MAX_NODES} values")
        if depth > MAX_DEPTH:
            raise ScenarioError.at(where, f"is nested deeper than {MAX_DEPTH} levels")

    def _node(self, event: Any, line: int, stack: list[tuple[Any, Place]], keys: list[Any]) -> None:
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
        if not isinstance(event, yaml.ScalarEvent):
            raise ScenarioError.at(f"{self.name}:{line}", "a key must be plain text")
        key: str = event.value
        if key in container and not self.tolerant:
            self.problems.append(Problem(f"{self.name}:{line}", f"the key {key!r} is given twice"))
        return key
