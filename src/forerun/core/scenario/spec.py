"""The types that scenarios are made of.

`Spec` is a frozen, strict record. A field's suffix is its unit (`slo_ms`), and files may write quantities with units
there (`350ms`, or the key without suffix: `slo: 350ms`). `NamedSpec` is a record with a name, chosen through a registry:
`policy: edf` or `policy: {name: gandiva, slot: 60s}`. `Input` is a file, pinned by its digest once resolved.
"""

from __future__ import annotations

import functools
import hashlib
import html
import inspect
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Protocol,
    Self,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from forerun.core.regular import open_regular
from forerun.core.scenario.numbers import all_outside, has_limits

if TYPE_CHECKING:
    from forerun.core.registry import Registry


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=False):
    """A frozen record of a scenario; unknown keys are errors.

    The range of a number is part of its type (see `numbers`); constraints between fields (one of two, a sum, an order)
    are checked in `problems`.
    """

    #: fields that the run id omits while they are None, because runs without them were saved before they existed
    added_later: ClassVar[tuple[str, ...]] = ()
    #: fields that are gone, with the value that stood for none: the run id counts it, and files of runs from before have it
    removed: ClassVar[Mapping[str, Any]] = {}

    def problems(self) -> list[tuple[str, str]]:
        """Problems of this record as a whole: (path below it, message); empty if there are none."""
        return []

    def faults(self) -> list[tuple[str, str]]:
        """The numbers that are outside of their ranges; where there are none, the problems of the record as a whole."""
        ranges = [
            fault
            for name, declared in _limited(type(self))
            for fault in all_outside(getattr(self, name), declared, name)
        ]
        return ranges or self.problems()

    def __repr__(self) -> str:
        """A scenario in a line, with what differs from the defaults by name; any other record in full."""
        if "domain" not in self.__struct_fields__:
            return super().__repr__()
        changed = ", ".join(name for name in _changed(self) if name != "domain")
        return f"<{getattr(self, 'domain')} scenario: sets {changed or 'nothing'}>"  # noqa: B009

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(yaml_text(self))}</pre>"

    def with_(self, **changes: Any) -> Self:
        """A copy with some fields changed, checked again."""
        changed = msgspec.structs.replace(self, **changes)
        faults = changed.faults()
        if faults:
            from forerun.core.errors import Problem, ScenarioError

            raise ScenarioError(*(Problem(path, what) for path, what in faults))
        return changed


class AnyScenario(Protocol):
    """What the scenarios of all domains have in common: `forerun.load` returns one."""

    @property
    def domain(self) -> str:
        """The name of its domain."""

    @property
    def seed(self) -> int:
        """Of its streams of random numbers."""


class NamedSpec(Spec, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="name"):
    """A named, parametrised choice (a policy, a process, a model), found through a registry.

    Subclasses give their name in files as `tag`: `class Las(SchedulingPolicy, tag="las")`.
    """


class Input(Spec, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file the run reads. `path` is absolute and `sha256` filled in once the scenario is resolved.

    A file whose content no longer has the digest is an error when the run starts.
    """

    path: str
    sha256: str = ""


def chosen_from(registry: Registry[Any] | Callable[[], Registry[Any]]) -> msgspec.Meta:
    """The annotation of a field that contains a policy spec: `policy: Annotated[Policy, chosen_from(POLICIES)]`.

    Takes the registry, or a function that returns it. A registry imports its members when it is first asked, so
    declaring a scenario imports no policy.
    """
    return msgspec.Meta(extra={"registry": registry})


@functools.cache
def field_types(spec: type[msgspec.Struct]) -> dict[str, Any]:
    """The declared type of each field, with annotations."""
    hints: dict[str, Any] = {}
    for base in reversed(spec.__mro__):
        if annotations := inspect.get_annotations(base):
            # Names are those of the module that declares the field, which inherited fields have of their own.
            names = vars(sys.modules[base.__module__])
            holder = type(
                base.__name__, (), {"__annotations__": dict(annotations), "__module__": base.__module__}
            )
            hints |= get_type_hints(holder, globalns=names, localns=names, include_extras=True)
    return {field.name: hints[field.name] for field in fields(spec)}


@functools.cache
def _limited(spec: type[msgspec.Struct]) -> tuple[tuple[str, Any], ...]:
    """The fields whose values have limits, with their declared types."""
    return tuple((name, declared) for name, declared in field_types(spec).items() if has_limits(declared))


@functools.cache
def fields(spec: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """The fields of a record type; cached, because msgspec computes them anew each time."""
    return msgspec.structs.fields(spec)


def reads_a_file(spec: type[msgspec.Struct]) -> bool:
    """Whether a section may be written as a path alone: `trace: jobs.csv` for `trace: {file: jobs.csv}`."""
    declared = field_types(spec).get("file")
    return declared is Input or Input in get_args(declared)


def registry_of(declared: Any) -> Registry[Any] | None:
    """The registry named in a field's annotation, if it has one."""
    if get_origin(declared) is Annotated:
        for extra in get_args(declared)[1:]:
            if isinstance(extra, msgspec.Meta) and extra.extra and "registry" in extra.extra:
                named: Registry[Any] | Callable[[], Registry[Any]] = extra.extra["registry"]
                return named() if callable(named) else named
    return None


def _default_of(field: msgspec.structs.FieldInfo) -> Any:
    made = field.default_factory
    return field.default if made is msgspec.NODEFAULT else made()


def _changed(record: Spec) -> list[str]:
    """The fields of a record that have no default, or another value."""
    return [
        field.name
        for field in fields(type(record))
        if field.required or getattr(record, field.name) != _default_of(field)
    ]


def label_of(named: NamedSpec) -> str:
    """A named choice in a few words: as it calls itself, or its name and the parameters that are not its defaults."""
    if label := getattr(named, "label", ""):
        return str(label)
    given = ", ".join(f"{name}={getattr(named, name)}" for name in _changed(named))
    return f"{named.__struct_config__.tag}({given})" if given else str(named.__struct_config__.tag)


def yaml_text(record: Spec) -> str:
    """A record as YAML in the order of its fields, every default written out; a file of it reads back the same."""
    import yaml

    data = to_data(record)
    ordered = {field.name: data[field.name] for field in fields(type(record))}
    text: str = yaml.safe_dump(
        ordered, sort_keys=False, allow_unicode=True, width=100, default_flow_style=None
    )
    return text


def to_data(value: object) -> Any:
    """Plain data (dicts, lists, text, numbers) of a record, every default written out, named specs with their names."""
    return msgspec.json.decode(msgspec.json.encode(value))


def override(path: str, value: object) -> str:
    """A change of a scenario as `--set` takes it: `a.b=value`, structure as JSON."""
    return f"{path}={value if isinstance(value, str) else canonical_json(value).decode()}"


def canonical_json(value: object) -> bytes:
    """The one JSON text of a record or of plain data: keys sorted, no spaces, shortest exact numbers."""
    return json.dumps(
        to_data(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def content_id(scenario: Spec, version: str, *also: object) -> str:
    """The run id: a digest of the resolved scenario, the package version, and what else decides; empty things do not count.

    Files count by their content, not by where they lie, so a run has the same id on every machine.
    """
    data = _as_before(scenario, to_data(scenario))
    parts = [canonical_json(_without_paths(data)), *(canonical_json(one) for one in also if one)]
    digest = hashlib.sha256(b"\0".join([version.encode(), *parts]))
    return digest.hexdigest()[:16]


def file_digest(path: Path) -> str:
    """The SHA-256 of a regular file's bytes, in hexadecimal. Raises OSError for a pipe or a device as well."""
    with open_regular(path) as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
        return digest.hexdigest()


def _as_before(value: object, data: Any) -> Any:
    """The data of a value, at any depth without the fields that were added later and are None, and with those removed."""
    if isinstance(value, Spec):
        return {
            name: _as_before(getattr(value, name, None), item)
            for name, item in data.items()
            if not (name in value.added_later and item is None)
        } | dict(value.removed)
    if isinstance(value, tuple | list):
        return [_as_before(*both) for both in zip(value, data, strict=True)]
    if isinstance(value, dict) and isinstance(data, dict):
        by_text = {str(key): item for key, item in value.items()}
        return {key: _as_before(by_text.get(key), item) for key, item in data.items()}
    return data


def _without_paths(data: Any) -> Any:
    if isinstance(data, dict):
        pinned = set(data) == {"path", "sha256"} and data["sha256"]
        return {key: _without_paths(value) for key, value in data.items() if not (pinned and key == "path")}
    if isinstance(data, list):
        return [_without_paths(item) for item in data]
    return data
