"""Objects of Kubernetes as `kubectl get -o yaml` or `-o json` prints them: one, several, or a list of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from forerun.core.errors import InputError, TraceError
from forerun.core.scenario.text import Document, parse_yaml_documents
from forerun.core.trace.documents import JsonDocument, Place, written
from forerun.core.trace.source import Source

#: text of a file, and values in YAML, which takes long to read; JSON is quick
MOST_BYTES: Final = 1 << 30
MOST_VALUES: Final = 4_000_000


@dataclass(frozen=True, slots=True)
class KubeObject:
    """An object, with where its values stand.

    Parameters
    ----------
    data : the object.
    place : where it is in its document.
    at : where a place of the document stands, as `file:line:path`.
    """

    data: dict[str, Any]
    place: Place
    at: Callable[..., str]

    @property
    def kind(self) -> str:
        """Its kind, such as `ClusterQueue`; empty if it says none."""
        return str(self.data.get("kind", ""))

    @property
    def version(self) -> str:
        """The group and version of its kind, such as `kueue.x-k8s.io/v1beta1`."""
        return str(self.data.get("apiVersion", ""))

    def where(self, *path: str | int) -> str:
        """Where a value stands."""
        return self.at(*self.place, *path)

    def fault(self, what: str, *path: str | int) -> TraceError:
        """The error of a value that is not what it should be."""
        return TraceError.at(self.where(*path), what)

    def get(self, *path: str | int) -> Any:
        """A value; None if it is not there. Raises TraceError where something on the way is no object or list."""
        value: Any = self.data
        for at, step in enumerate(path):
            if value is None:
                return None
            if isinstance(step, int):
                value = value[step]
            elif isinstance(value, dict):
                value = value.get(step)
            else:
                raise self.fault("an object is expected", *path[:at])
        return value

    def items(self, *path: str | int) -> Iterator[tuple[str | int, ...]]:
        """The paths of the objects in a list; none if it is not there. Raises TraceError if it is no list of objects."""
        listed = self.get(*path)
        if listed is None:
            return
        if not isinstance(listed, list):
            raise self.fault("a list is expected", *path)
        for at, item in enumerate(listed):
            if not isinstance(item, dict):
                raise self.fault("an object is expected", *path, at)
            yield (*path, at)

    def text(self, *path: str | int) -> str:
        """A text; empty if it is not there. Raises TraceError if it is something else."""
        value = self.get(*path)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.fault("a text is expected", *path)
        return value

    def count(self, *path: str | int) -> int | None:
        """A count, as a number or a quantity such as `"8"`; None if it is not there. Raises TraceError for others."""
        value = self.get(*path)
        if value is None:
            return None
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 12:
            return int(value)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**12:
            return value
        raise self.fault("a whole number from 0 is expected", *path)


def read_objects(source: Source) -> list[KubeObject]:
    """All objects of a file, lists opened. Raises TraceError for what is neither YAML nor JSON."""
    text = source.read(MOST_BYTES)
    if text.lstrip().startswith("{"):
        json = JsonDocument(source, text)
        return list(_opened(json.value, (), json.at))
    try:
        documents = parse_yaml_documents(text, name=source.name, most_values=MOST_VALUES)
    except InputError as error:
        raise TraceError(*error.problems) from None
    return [one for document in documents for one in _opened(document.data, (), _places(document))]


def _places(document: Document) -> Callable[..., str]:
    def at(*place: str | int) -> str:
        known: Place = place
        while known and known not in document.lines:
            known = known[:-1]
        line = document.lines.get(known, 1)
        path = written(place)
        return f"{document.name}:{line}:{path}" if path else f"{document.name}:{line}"

    return at


def _opened(value: Any, place: Place, at: Callable[..., str]) -> Iterator[KubeObject]:
    """The objects that a value is, or has in its list."""
    if not isinstance(value, dict):
        raise TraceError.at(at(*place), "an object with kind and metadata is expected")
    if str(value.get("kind", "")).endswith("List") or "items" in value:
        items = value.get("items")
        if not isinstance(items, list):
            raise TraceError.at(at(*place, "items"), "a list of objects is expected")
        for number, item in enumerate(items):
            yield from _opened(item, (*place, "items", number), at)
    else:
        yield KubeObject(value, place, at)
