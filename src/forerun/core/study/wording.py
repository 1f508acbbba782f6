"""Short labels of axes and their values: the shortest names that are distinct."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from forerun.core.scenario.spec import canonical_json
from forerun.core.units import readable_unit, stem, unit_of


def axis_labels(paths: Sequence[str]) -> tuple[str, ...]:
    """A label for each axis path, all different: the last step without its unit, and more steps where that is not enough.

    >>> axis_labels(["trace.process.rate_rps", "configuration.detect.replicas", "configuration.ocr.replicas"])
    ('rate', 'detect replicas', 'ocr replicas')
    """
    steps = [path.replace("[", ".").replace("]", "").split(".") for path in paths]
    taken = [1] * len(paths)
    while True:
        labels = [_words(parts[-count:]) for parts, count in zip(steps, taken)]
        twice = [at for at, label in enumerate(labels) if labels.count(label) > 1]
        longer = [at for at in twice if taken[at] < len(steps[at])]
        if not longer:
            return tuple(paths[at] if at in twice else label for at, label in enumerate(labels))
        for at in longer:
            taken[at] += 1


def axis_unit(path: str) -> str:
    """The unit of an axis's values, as its name says it; empty for pure numbers and names."""
    return unit_of(path) or ""


def value_text(value: object) -> str:
    """An axis value in few words: a named spec by its name and what is set of it, other structure as JSON."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, float):
        return f"{value:.9g}"
    if isinstance(value, (str, int)):
        return str(value)
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):
        rest = ", ".join(f"{key}={value_text(inner)}" for key, inner in value.items() if key != "name")
        return f"{value['name']} ({rest})" if rest else str(value["name"])
    if isinstance(value, (list, tuple)) and all(isinstance(item, (str, int, float)) for item in value):
        return ", ".join(value_text(item) for item in value)
    return canonical_json(value).decode()


def combination_text(labels: Sequence[str], values: Sequence[Any], units: Sequence[str] = ()) -> str:
    """A combination in one line: `batching greedy, rate 40 1/s`; `units` of the axes, empty for those without."""
    texts = []
    for at, (label, value) in enumerate(zip(labels, values)):
        unit = readable_unit(units[at]) if at < len(units) and isinstance(value, (int, float)) else ""
        texts.append(f"{label} {value_text(value)} {unit}".rstrip())
    return ", ".join(texts) or "the base scenario"


def _words(steps: Sequence[str]) -> str:
    return " ".join([*steps[:-1], stem(steps[-1])]).replace("_", " ")
