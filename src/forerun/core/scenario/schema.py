"""The JSON Schema of scenario files, for editors and other programs.

It follows the strict types, and adds what files may also say: a quantity with a unit where a field has one, then also
under the field's name without its unit; a path alone for an input; a file that describes a section; a named spec's name
alone or with its parameters.
"""

from __future__ import annotations

import types
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import msgspec

from forerun.core.scenario.spec import Input, Spec, field_types, reads_a_file, registry_of
from forerun.core.units import stem, unit_of

#: what a section may be instead: the file that describes it
_DESCRIBED: Final = {
    "type": "string",
    "pattern": r"\.(ya?ml|json|toml)$",
    "description": "a file that contains the section",
}
_PLAIN = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}


def scenario_schema(spec: type[Spec]) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a domain's scenario type."""
    definitions: dict[str, Any] = {}
    root = _record(spec, definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"forerun {_default(spec, 'domain')} scenario",
        **root,
        "$defs": dict(sorted(definitions.items())),
    }


def _default(spec: type[msgspec.Struct], name: str) -> Any:
    field = next(field for field in msgspec.structs.fields(spec) if field.name == name)
    return field.default


def _record(spec: type[msgspec.Struct], definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of a record type, with its fields, and what is required."""
    declared = field_types(spec)
    properties: dict[str, Any] = {}
    required: list[str] = []
    either: list[dict[str, Any]] = []
    stems = [stem(name) for name in declared]
    for field in msgspec.structs.fields(spec):
        unit, bare = unit_of(field.name), stem(field.name)
        shape = _of(declared[field.name], unit, definitions)
        properties[field.name] = (
            {"anyOf": [shape, _DESCRIBED]} if _is_section(declared[field.name]) else shape
        )
        twofold = unit is not None and bare not in declared and stems.count(bare) == 1
        if twofold:
            properties[bare] = {"type": "string", "description": f"{field.name}, as a quantity with a unit"}
        if field.required and twofold:
            either.append({"oneOf": [{"required": [field.name]}, {"required": [bare]}]})
        elif field.required:
            required.append(field.name)
        elif isinstance(field.default, (bool, int, float, str)):
            properties[field.name]["default"] = field.default
    config = spec.__struct_config__
    if config.tag_field:
        properties[config.tag_field] = {"const": config.tag}
        required.append(config.tag_field)
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = required
    if either:
        schema["allOf"] = either
    if spec.__doc__:
        schema["description"] = " ".join(spec.__doc__.split())
    return schema


def _of(declared: Any, unit: str | None, definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of a declared type."""
    registry = registry_of(declared)
    if registry is not None:
        sections = [_reference(registry.get(name), definitions) for name in registry.names()]
        absent = [{"type": "null"}] if type(None) in get_args(get_args(declared)[0]) else []
        return {"anyOf": [{"enum": list(registry.names())}, *sections, *absent]}
    origin = get_origin(declared)
    if origin is Annotated:
        bare, *extras = get_args(declared)
        return {**_of(bare, unit, definitions), **_limits(extras)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_of(option, unit, definitions) for option in get_args(declared)]}
    if origin is Literal:
        return {"enum": list(get_args(declared))}
    if origin in (list, tuple):
        arguments = get_args(declared)
        if origin is tuple and arguments[-1] is not Ellipsis:
            items = [_of(item, unit, definitions) for item in arguments]
            return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
        return {"type": "array", "items": _of(arguments[0], unit, definitions)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _of(get_args(declared)[1], unit, definitions)}
    if isinstance(declared, type) and issubclass(declared, msgspec.Struct):
        section = _reference(declared, definitions)
        by_path = issubclass(declared, Input) or reads_a_file(declared)
        return {"anyOf": [{"type": "string"}, section]} if by_path else section
    if declared in (int, float) and unit is not None:
        return {"type": [_PLAIN[declared], "string"], "description": f"in {unit}, or a quantity with a unit"}
    return {"type": _PLAIN[declared]} if declared in _PLAIN else {}


def _is_section(declared: Any) -> bool:
    """Whether a value is written as a section, and no path alone is one already."""
    if registry_of(declared) is not None or get_origin(declared) is dict:
        return True
    if get_origin(declared) in (Annotated, Union, types.UnionType):
        return any(map(_is_section, get_args(declared)))
    return (
        isinstance(declared, type)
        and issubclass(declared, msgspec.Struct)
        and not (issubclass(declared, Input) or reads_a_file(declared))
    )


def _reference(spec: type[msgspec.Struct], definitions: dict[str, Any]) -> dict[str, Any]:
    name = spec.__name__
    if name not in definitions:
        definitions[name] = {}  # a record may contain itself
        definitions[name] = _record(spec, definitions)
    return {"$ref": f"#/$defs/{name}"}


def _limits(extras: list[Any]) -> dict[str, Any]:
    """The limits of a number or text as JSON Schema has them."""
    words = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
    words |= {
        "min_length": "minLength",
        "max_length": "maxLength",
        "pattern": "pattern",
        "description": "description",
    }
    limits: dict[str, Any] = {}
    for extra in extras:
        if isinstance(extra, msgspec.Meta):
            limits |= {
                word: getattr(extra, name) for name, word in words.items() if getattr(extra, name) is not None
            }
    return limits
