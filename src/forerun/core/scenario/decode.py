"""Plain data into typed records, reporting every problem of a file at once.

The walk follows the declared types of the records: unknown keys get a suggestion, quantities become numbers of the
field's unit, named specs are looked up in their registry, and each leaf is checked by msgspec. A record whose fields are
all right is finally asked whether it holds together (`Spec.problems`).
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from forerun.core.errors import ForerunError, Problem, ScenarioError, known_names, suggestion
from forerun.core.scenario.numbers import outside
from forerun.core.scenario.spec import Input, NamedSpec, Spec, field_types, fields, reads_a_file, registry_of
from forerun.core.scenario.text import Document, Place, step_of
from forerun.core.units import parse_quantity, stem, unit_of, whole_number

S = TypeVar("S", bound=Spec)

_MISSING: Any = object()


def decode(document: Document, spec: type[S]) -> S:
    """The record that a document describes.

    Raises ScenarioError with every problem found: file, line, path, what was found and what is known.
    """
    decoder = _Decoder(document)
    value = decoder.value(document.data, spec, (), None)
    if decoder.problems:
        raise ScenarioError(*decoder.problems)
    assert isinstance(value, spec)
    return value


class _Decoder:
    """The walk over one document. A method returns the value of a place, or `_MISSING` after it noted a problem
    there.

    place: where the value stands, for messages. unit: of the field, in which a quantity such as `5min` is read; None
    for none.
    """

    def __init__(self, document: Document) -> None:
        self.document = document
        self.problems: list[Problem] = []

    def problem(self, place: Place, what: str) -> Any:
        self.problems.append(Problem(self.document.where(place), what))
        return _MISSING

    def value(self, data: Any, declared: Any, place: Place, unit: str | None) -> Any:
        """One value of a declared type; `_MISSING` after a problem was noted."""
        try:
            return self.checked(data, declared, place, unit)
        except (ArithmeticError, OSError, RecursionError, ValueError) as error:
            # A check that a value without sense brings down: the value is refused, the others are still read.
            return self.problem(place, f"cannot be checked: {type(error).__name__}: {error}")

    def checked(self, data: Any, declared: Any, place: Place, unit: str | None) -> Any:
        """As `value`, which refuses what raises here."""
        registry = registry_of(declared)
        if registry is not None:
            return self.chosen(data, registry, place, declared)
        origin = get_origin(declared)
        if origin is Annotated:
            bare = get_args(declared)[0]
            converted = self.value(data, bare, place, unit)
            return converted if converted is _MISSING else self.leaf(converted, declared, place, given=data)
        if origin in (Union, types.UnionType):
            return self.union(data, declared, place, unit)
        if isinstance(declared, type) and issubclass(declared, Input) and isinstance(data, str):
            return declared(path=data)
        if isinstance(declared, type) and issubclass(declared, msgspec.Struct):
            return self.record(data, declared, place)
        if origin in (list, tuple, frozenset, set) or declared in (list, tuple):
            return self.sequence(data, declared, place, unit)
        if origin is dict:
            return self.mapping(data, declared, place, unit)
        if declared in (int, float) and isinstance(data, str) and unit is not None:
            return self.quantity(data, declared, place, unit)
        return self.leaf(data, declared, place)

    def record(self, data: Any, spec: type[msgspec.Struct], place: Place) -> Any:
        """A record from a section.

        A text in place of a section that reads a file is the name of the file. Every key is read before the record is
        made, so that one bad value does not hide another.
        """
        if isinstance(data, str) and reads_a_file(spec):
            data = {"file": data}
        elif (
            isinstance(data, dict)
            and "name" in data
            and reads_a_file(spec)
            and not issubclass(spec, NamedSpec)
        ):
            data = _file_by_name(data, spec)
        if not isinstance(data, dict):
            keys = ", ".join(field.name for field in fields(spec)[:8])
            return self.problem(
                place, f"a section with keys such as {keys} is wanted, {_kind(data)} was found"
            )
        before = len(self.problems)
        declared = field_types(spec)
        given: dict[str, Any] = {}
        for key, item in data.items():
            name = self.field_name(key, item, declared, spec, place)
            if name is None:
                continue
            if name in given:
                self.problem((*place, key), f"gives {name!r} a second time")
                continue
            given[name] = self.value(item, declared[name], (*place, key), unit_of(name))
        missing = [field.name for field in fields(spec) if field.required and field.name not in given]
        for name in missing:
            self.problem(place, f"the key {name!r} is missing")
        if missing or any(value is _MISSING for value in given.values()):
            return _MISSING
        # Keys that are unknown do not hide what is wrong with those that are known.
        decoded = self.whole(spec, given, place)
        return _MISSING if len(self.problems) > before else decoded

    def field_name(
        self, key: str, item: Any, declared: dict[str, Any], spec: type[msgspec.Struct], place: Place
    ) -> str | None:
        """The field that a key names; None, after noting a problem, if it names none.

        A quantity may be given without the unit in its name: `slo: 350ms` for `slo_ms`.
        """
        if key in declared:
            return key
        removed = spec.removed if issubclass(spec, Spec) else {}
        if key in removed and item == removed[key]:
            return None
        config = spec.__struct_config__
        if config.tag_field == key:
            if item != config.tag:
                self.problem((*place, key), f"{item!r} was found, {config.tag!r} is wanted")
            return None
        with_unit = [name for name in declared if unit_of(name) and stem(name) == key]
        if len(with_unit) == 1 and isinstance(item, str):
            return with_unit[0]
        if len(with_unit) == 1:
            self.problem(
                (*place, key),
                f"needs a unit: write {with_unit[0]!r}, or a quantity such as '10 {unit_of(with_unit[0])}'",
            )
            return None
        self.problem((*place, key), f"unknown key {key!r}; {known_names(key, declared)}")
        return None

    def whole(self, spec: type[msgspec.Struct], given: dict[str, Any], place: Place) -> Any:
        """The record of values that are all right by themselves, unless the record finds a problem in them together."""
        try:
            record = spec(**given)
        except (TypeError, ValueError, msgspec.ValidationError) as error:
            return self.problem(place, str(error))
        if isinstance(record, Spec):
            faults = record.faults()
            for path, what in faults:
                steps: Place = tuple(step_of(part) for part in path.split(".") if part)
                self.problem((*place, *steps), what)
            if faults:
                return _MISSING
        return record

    def chosen(self, data: Any, registry: Any, place: Place, declared: Any) -> Any:
        """A named spec: its name alone, or a section with `name` and parameters."""
        if isinstance(data, NamedSpec):
            return data
        if data is None and type(None) in get_args(get_args(declared)[0]):
            return None
        if isinstance(data, str):
            data = {"name": data}
        if not isinstance(data, dict) or not isinstance(data.get("name"), str):
            return self.problem(
                place,
                f"a {registry.kind} is wanted (a name, or a section with `name`); known: {', '.join(registry.names())}",
            )
        name = data["name"]
        if name not in registry:
            return self.problem(place, registry.refusal(name))
        try:
            member = registry.get(name)
        except ForerunError as error:
            self.problems.extend(error.problems)
            return _MISSING
        return self.record({key: item for key, item in data.items() if key != "name"}, member, place)

    def union(self, data: Any, declared: Any, place: Place, unit: str | None) -> Any:
        """A value of one of several types: by its tag, by its keys, or the first type that takes it.

        Where none does, the problem of the only type of its kind is reported, else which types there are.
        """
        options = get_args(declared)
        if data is None and type(None) in options:
            return None
        records = [
            option for option in options if isinstance(option, type) and issubclass(option, msgspec.Struct)
        ]
        if isinstance(data, dict) and records:
            return self.record_of(data, records, place)
        plain = [option for option in options if option is not type(None) and option not in records]
        if isinstance(data, str) and Input in records and str not in plain:
            return Input(path=data)
        readers = [record for record in records if reads_a_file(record)]
        if isinstance(data, str) and len(readers) == 1 and str not in plain:
            return self.record(data, readers[0], place)
        if not plain:
            return (
                self.record_of(data, records, place)
                if len(records) > 1
                else self.record(data, records[0], place)
            )
        trials = []
        for option in plain:
            trial = _Decoder(self.document)
            converted = trial.value(data, option, place, unit)
            if converted is not _MISSING:
                return converted
            trials.append(trial)
        alike = [trial for trial, option in zip(trials, plain) if _same_kind(data, option)]
        if len(plain) == 1 or len(alike) == 1:
            self.problems.extend((alike or trials)[0].problems)
            return _MISSING
        names = ", ".join(_type_name(option) for option in plain)
        return self.problem(place, f"{_kind(data)} was found, one of these is wanted: {names}")

    def record_of(self, data: Any, records: list[type[msgspec.Struct]], place: Place) -> Any:
        """A section of one of several record types: by its tag, else the type that has most of its keys."""
        tagged = {
            str(record.__struct_config__.tag): record for record in records if record.__struct_config__.tag
        }
        if tagged and isinstance(data, dict):
            tag_field = next(iter(tagged.values())).__struct_config__.tag_field or "type"
            name = data.get(tag_field)
            if not isinstance(name, str) or name not in tagged:
                hint = suggestion(str(name), list(tagged)) if name is not None else ""
                return self.problem(
                    (*place, tag_field), f"{name!r} was found; {hint}known: {', '.join(sorted(tagged))}"
                )
            return self.record(data, tagged[name], place)
        if isinstance(data, dict) and records:
            return self.record(data, max(records, key=lambda record: _fit(data, record)), place)
        return self.problem(place, f"a section is wanted, {_kind(data)} was found")

    def sequence(self, data: Any, declared: Any, place: Place, unit: str | None) -> Any:
        """A list, tuple or set; every item is of the declared type and in the unit of the field."""
        if not isinstance(data, list):
            return self.problem(place, f"a list{_of_sections(declared)} is wanted, {_kind(data)} was found")
        arguments = get_args(declared)
        origin = get_origin(declared) or declared
        if origin is tuple and arguments and arguments[-1] is not Ellipsis:
            if len(arguments) != len(data):
                return self.problem(place, f"{len(arguments)} values are wanted, {len(data)} were found")
            items = [
                self.value(item, kind, (*place, i), unit)
                for i, (item, kind) in enumerate(zip(data, arguments))
            ]
        else:
            kind = arguments[0] if arguments else Any
            items = [self.value(item, kind, (*place, i), unit) for i, item in enumerate(data)]
        if any(item is _MISSING for item in items):
            return _MISSING
        build: Callable[[list[Any]], Any] = origin
        return build(items)

    def mapping(self, data: Any, declared: Any, place: Place, unit: str | None) -> Any:
        """A section with free keys; a value is in the unit of its key where the field has none."""
        if not isinstance(data, dict):
            return self.problem(place, f"a section is wanted, {_kind(data)} was found")
        key_type, value_type = get_args(declared)
        entries: dict[Any, Any] = {}
        for key, item in data.items():
            if key_type is int and isinstance(key, str):
                number = whole_number(key.removeprefix("-"))
                key = key if number is None else -number if key.startswith("-") else number
            checked = self.leaf(key, key_type, (*place, str(key)))
            value = self.value(item, value_type, (*place, str(key)), unit or unit_of(str(key)))
            if checked is not _MISSING and value is not _MISSING:
                entries[checked] = value
        return entries if len(entries) == len(data) else _MISSING

    def quantity(self, data: str, declared: Any, place: Place, unit: str) -> Any:
        """A text such as `5min` as a number of the field's unit."""
        try:
            number = parse_quantity(data, unit)
        except ValueError as error:
            return self.problem(place, str(error))
        if declared is int:
            if number != round(number):
                return self.problem(place, f"{data!r} is {number} {unit}, a whole number is wanted")
            return round(number)
        return number

    def leaf(self, data: Any, declared: Any, place: Place, *, given: Any = _MISSING) -> Any:
        """A scalar of a declared type with its limits, checked by msgspec.

        given: what the file says, where `data` was read from a quantity (default: `data` itself).
        """
        bare, *extras = get_args(declared) if get_origin(declared) is Annotated else (declared,)
        original = data if given is _MISSING else given
        for extra in extras:
            shown = repr(original) if isinstance(original, str | int | float) else ""
            if isinstance(extra, msgspec.Meta) and (what := outside(data, extra, shown)):
                return self.problem(place, what)
        if given is not _MISSING and not isinstance(data, (int, float, str)):
            return data
        if isinstance(data, float) and data != data and bare in (int, float):
            return self.problem(place, "nan was found, a number is wanted")
        if isinstance(data, float) and data in (float("inf"), float("-inf")) and bare in (int, float):
            return self.problem(place, f"{data} was found, a finite number is wanted")
        if get_origin(bare) is Literal and data not in get_args(bare):
            known = ", ".join(str(option) for option in get_args(bare))
            hint = suggestion(data, [str(o) for o in get_args(bare)]) if isinstance(data, str) else ""
            return self.problem(place, f"{data!r} was found; {hint}known: {known}")
        try:
            return msgspec.convert(data, declared, strict=True)
        except msgspec.ValidationError as error:
            message = str(error).replace("Expected", "expected").split(" - at ")[0].replace("`", "")
            shown = "" if isinstance(original, (dict, list)) else f"{original!r} was found: "
            return self.problem(place, shown + message)
        except TypeError:
            return (
                data if typing.Any is declared else self.problem(place, f"{_kind(data)} cannot be used here")
            )


def _of_sections(declared: Any) -> str:
    """What the items of a list are, where they are sections: their keys, those without a default first."""
    kind = (get_args(declared) or (None,))[0]
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return ""
    keys = sorted(fields(kind), key=lambda field: not field.required)
    return f" of sections with {', '.join(field.encode_name for field in keys)}"


def _fit(data: dict[str, Any], record: type[msgspec.Struct]) -> int:
    names = set(record.__struct_fields__)
    return sum(1 if key in names else -1 for key in data)


def _file_by_name(data: dict[str, Any], spec: type[msgspec.Struct]) -> dict[str, Any]:
    """`trace: jobs.csv` with one key set beside it (`--set trace.first=9`) has become a section with a name: the file."""
    if "file" in data or any(field.name == "name" for field in fields(spec)):
        return data
    return {"file" if key == "name" else key: value for key, value in data.items()}


def _kind(data: Any) -> str:
    """What was found, in a few words."""
    if data is None:
        return "nothing (null)"
    if isinstance(data, dict):
        return "a section"
    if isinstance(data, list):
        return "a list"
    return repr(data) if len(repr(data)) < 60 else repr(data)[:57] + "..."


def _same_kind(data: Any, option: Any) -> bool:
    """Whether plain data are of an option's kind, though perhaps out of its limits."""
    bare = get_args(option)[0] if get_origin(option) is Annotated else option
    bare = get_origin(bare) or bare
    if bare in (list, tuple):
        return isinstance(data, list)
    return (
        isinstance(bare, type)
        and isinstance(data, bare)
        and not (isinstance(data, bool) and bare is not bool)
    )


def _type_name(option: Any) -> str:
    if get_origin(option) is Annotated:
        return _type_name(get_args(option)[0])
    if get_origin(option) is Literal:
        return " | ".join(repr(choice) for choice in get_args(option))
    return str(getattr(option, "__name__", option))
