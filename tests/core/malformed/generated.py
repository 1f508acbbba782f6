"""Scenarios drawn from the JSON Schemas, most of them nearly right: what a user's editor or a program could write."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forerun
from forerun.core.scenario.text import read_document

#: values that a file may hold where something else is expected
JUNK: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 0.5, -0.0, 1e-320, 1e308, -1e308, float("inf"), float("nan"), 2**53, 2**63, 2**64,
    10**30, 10**300, "", " ", "0", "nan", "²", "1 furlong", "1e999s", "-5ms", "5 ms", "1e308 d", "$", "$1/h", "9" * 400,
    "x" * 5000, "a\0b", "/dev/zero", "/dev/null", "/", ".", "~nosuchuser/x.csv", "~nosuchuser/x.yaml", "loop",
    "pipe", "folder", "none.csv", "none.yaml", "n" * 300 + ".yaml", "data:", "data:none", "\ud800", "\x01", "\u202e",
    "=1+1", "../../etc/passwd", [], [[]], [None], {}, {"": 1}, {"name": None}, {"name": "²"}, {"file": "pipe"},
    {"file": "/dev/zero"}, {"file": "a\0b"}, [0, 0], [1, 2, 3], ["a", "a"], [1e308, 1e308], {"a": {"a": {"a": 1}}},
)  # fmt: skip

_UNITS = (
    "ms",
    "s",
    "min",
    "h",
    "d",
    "GB",
    "MiB",
    "Gbps",
    "W",
    "kWh",
    "usd",
    "usd/h",
    "rps",
    "/s",
    "%",
    "GPU-h",
    "",
)


def scenarios(seed: int, domain: str) -> Iterator[dict[str, Any]]:
    """Without end: the domain's example with some values changed, or a scenario drawn from the schema alone."""
    schema = forerun.schema(domain)
    example = read_document(Path(forerun.demo(domain).scenario)).data
    draw = _Draw(random.Random(f"{seed} {domain}"), schema)
    while True:
        if draw.random.random() < 0.3:
            drawn = draw.value(schema, 0)
            data = {**drawn, "domain": domain} if isinstance(drawn, dict) else {"domain": domain}
        else:
            data = json.loads(json.dumps(example))
            for _ in range(draw.random.choice((1, 1, 1, 2, 3, 5))):
                draw.change(data, schema)
            data.setdefault("domain", domain)
        yield data


class _Draw:
    """Values of a schema, drawn; now and then one that is none of it."""

    def __init__(self, source: random.Random, schema: dict[str, Any]) -> None:
        self.random = source
        self.definitions = schema.get("$defs", {})

    def value(self, schema: Any, depth: int) -> Any:
        """A value of the schema, or junk."""
        draw = self.random
        if not isinstance(schema, dict) or depth > 8 or draw.random() < 0.03:
            return self.junk()
        if "$ref" in schema:
            return self.value(self.definitions[schema["$ref"].rpartition("/")[2]], depth + 1)
        for several in ("anyOf", "oneOf"):
            if several in schema and not schema.get("properties"):
                return self.value(draw.choice(schema[several]), depth + 1)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return draw.choice(schema["enum"])
        if "properties" in schema or schema.get("type") == "object":
            return self.section(schema, depth)
        kind = schema.get("type")
        kind = draw.choice(kind) if isinstance(kind, list) else kind
        if kind == "array":
            items = schema.get("prefixItems") or [schema.get("items", {})] * draw.choice((0, 1, 1, 2, 4))
            return [self.value(item, depth + 1) for item in items]
        if kind in ("integer", "number"):
            return self.number(schema, whole=kind == "integer")
        if kind == "boolean":
            return draw.random() < 0.5
        if kind == "string":
            return self.text()
        return self.junk()

    def junk(self) -> Any:
        """A value that nothing expects; a copy, because what is drawn is changed later."""
        return copy.deepcopy(self.random.choice(JUNK))

    def section(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        """An object: what is required, and some of the rest."""
        draw, properties = self.random, schema.get("properties", {})
        wanted = set(schema.get("required", ()))
        for group in (*schema.get("allOf", ()), *([schema] if "oneOf" in schema else [])):
            for option in group.get("oneOf", ())[:1]:
                wanted |= set(option.get("required", ()))
        share = draw.choice((0.0, 0.1, 0.3))
        found = {
            name: self.value(shape, depth + 1)
            for name, shape in properties.items()
            if (name in wanted and draw.random() > 0.02) or draw.random() < share
        }
        more = schema.get("additionalProperties")
        if isinstance(more, dict):
            for _ in range(draw.choice((0, 1, 2))):
                found[self.text()] = self.value(more, depth + 1)
        if draw.random() < 0.02:
            found[self.text()] = self.junk()
        return found

    def number(self, schema: dict[str, Any], *, whole: bool) -> Any:
        """A number within the limits or just outside them, small more often than large."""
        draw = self.random
        low = schema.get("minimum", schema.get("exclusiveMinimum", -2))
        high = schema.get("maximum", schema.get("exclusiveMaximum", 10))
        if draw.random() < 0.2:
            return draw.choice((low, high, low - 1, high + 1, -1, 0, 1e9, 2**31, 2**62, 1e-12))
        return (
            draw.randint(int(low), int(max(low, high)))
            if whole
            else draw.uniform(low, max(low, min(high, low + 100)))
        )

    def text(self) -> str:
        """A name, a number with a unit, a file."""
        draw = self.random
        return draw.choice((
            draw.choice("abcxyz"), f"{draw.choice((0, 1, 10, 0.5, -3))}{draw.choice(_UNITS)}", "jobs.csv", "ResNet", "cpu",
            "loop", "pipe", "²", "a.b[0]",
        ))  # fmt: skip

    def change(self, data: dict[str, Any], schema: Any) -> None:
        """Replace, remove or add one value somewhere."""
        draw, here = self.random, schema
        holder: Any = data
        while True:
            keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
            if not keys:
                return
            key = draw.choice(keys)
            here = self._below(here, key)
            inner = holder[key]
            if isinstance(inner, (dict, list)) and inner and draw.random() < 0.75:
                holder = inner
                continue
            break
        match draw.random():
            case share if share < 0.1:
                del holder[key]
            case share if share < 0.2 and isinstance(holder, dict):
                name = draw.choice(list(self._properties(schema)) or ["x"])
                holder[name] = self.value(self._properties(schema).get(name), 1)
            case share if share < 0.55:
                holder[key] = self.value(here, 1)
            case _:
                holder[key] = self.junk()

    def _properties(self, schema: Any) -> dict[str, Any]:
        schema = self._followed(schema)
        return dict(schema.get("properties", {})) if isinstance(schema, dict) else {}

    def _followed(self, schema: Any) -> Any:
        while isinstance(schema, dict) and "$ref" in schema:
            schema = self.definitions[schema["$ref"].rpartition("/")[2]]
        return schema

    def _below(self, schema: Any, key: Any) -> Any:
        schema = self._followed(schema)
        if not isinstance(schema, dict):
            return None
        if isinstance(key, str) and key in schema.get("properties", {}):
            return schema["properties"][key]
        if isinstance(key, int) and "items" in schema:
            return schema["items"]
        for option in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
            found = self._below(option, key)
            if found is not None:
                return found
        more = schema.get("additionalProperties")
        return more if isinstance(more, dict) else None


def written(data: dict[str, Any], kind: str) -> str:
    """The text of a scenario as a file of a kind holds it: ".yaml", ".json" or ".toml"."""
    if kind == ".toml":
        return "".join(
            f"{_quoted(str(key))} = {_inline(value)}\n" for key, value in data.items() if value is not None
        )
    text = json.dumps(data, indent=1)
    return text if kind == ".json" else text.replace("NaN", ".nan").replace("Infinity", ".inf")


def _quoted(text: str) -> str:
    return json.dumps(text).replace("\\ud800", "\\uFFFD").replace("\x7f", "\\u007f")


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        inner = ", ".join(
            f"{_quoted(str(key))} = {_inline(item)}" for key, item in value.items() if item is not None
        )
        return "{" + inner + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_inline(item) for item in value if item is not None) + "]"
    if isinstance(value, float):
        return repr(value)
    return _quoted(value) if isinstance(value, str) else json.dumps(value)
