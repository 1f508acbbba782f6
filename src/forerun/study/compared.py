"""Files of comparisons: one JSON document each, checked when it is read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from forerun.atomic_write import write_text
from forerun.errors import StoreError, worded
from forerun.regular import read_regular
from forerun.result.reading import check_figures
from forerun.scenario.spec import to_data
from forerun.study.compare import Comparison

#: what a comparison file says it is
COMPARISON_FORMAT: Final = "forerun.comparison/1"


def save_comparison(comparison: Comparison, path: str | os.PathLike[str]) -> Path:
    """Write a comparison; it appears whole or not at all.

    Raises StoreError if the path contains something other than a comparison, or cannot be written.
    """
    target = Path(path)
    if target.exists() and not _is_comparison(target):
        raise StoreError.at(target, "already contains something that is not a comparison; name another file")
    data = {key: value for key, value in to_data(comparison).items() if key != "code" or value}
    text = json.dumps({"format": COMPARISON_FORMAT, **data}, indent=1, ensure_ascii=False, allow_nan=False)
    return write_text(target, text + "\n")


def comparison_of(data: Mapping[str, Any], name: str) -> Comparison:
    """The comparison in a document. Raises StoreError saying what is damaged."""
    check_figures(data.get("standings"), name, "$.standings")
    try:
        rest = {key: value for key, value in data.items() if key != "format"}
        made = msgspec.convert(rest, Comparison)
    except (msgspec.ValidationError, TypeError) as error:
        raise StoreError.at(name, f"is no comparison: {worded(error)}") from error
    if made.reference not in [one.variant.name for one in made.standings]:
        raise StoreError.at(f"{name}: at $.reference", f"no variant is named {made.reference!r}")
    if len({len(one.draws) for one in made.standings}) > 1:
        raise StoreError.at(f"{name}: at $.standings", "the variants have different numbers of draws")
    return made


def _is_comparison(path: Path) -> bool:
    try:
        document = json.loads(read_regular(path).decode("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(document, dict) and document.get("format") == COMPARISON_FORMAT
