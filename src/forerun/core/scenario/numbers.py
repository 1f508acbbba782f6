"""Ranges of numbers that scenarios share, as annotated types: a value outside is an error with its line.

A limit may say why it is there: `Meta(ge=1, description="nothing is faster than itself")` ends the message and stands in
the schema.
"""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Iterator
from typing import Annotated, Any, Final, TypeAlias, Union, get_args, get_origin

import msgspec

#: a number above 0
Positive: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]
#: a number from 0 on
NotNegative: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]
#: a share of something
Share: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1)]
#: a whole number from 1 on, and from 0 on
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
Whole: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]

_LIMITS: Final = ("gt", "ge", "lt", "le", "min_length", "max_length")


def outside(value: object, limits: msgspec.Meta, shown: str = "") -> str:
    """What is wrong with a number outside of its limits, or with an empty list; nothing if it is inside.

    Parameters
    ----------
    value, limits : what was found, and what is allowed.
    shown : the value as the user wrote it (default: the value).
    """
    if isinstance(value, dict | tuple | list):
        return "is empty; one entry at least is wanted" if limits.min_length and not value else ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    least, over, most, under = limits.ge, limits.gt, limits.le, limits.lt
    if isinstance(value, float) and not math.isfinite(value) and (least, over, most, under) != (None,) * 4:
        what = "is not finite"
    elif least is not None and value < least and most is None:
        what = f"is below {_plain(least)}" if least else "is negative"
    elif over is not None and value <= over:
        what = f"is not above {_plain(over)}"
    elif under is not None and value >= under:
        what = f"is not below {_plain(under)}"
    elif most is not None and value > most and least is None:
        what = f"is above {_plain(most)}"
    elif least is not None and most is not None and not least <= value <= most:
        what = f"is not between {_plain(least)} and {_plain(most)}"
    else:
        return ""
    return f"{shown or value} {what}" + (f": {limits.description}" if limits.description else "")


def _plain(limit: float) -> str:
    return f"{int(limit):,}" if float(limit).is_integer() else f"{limit:g}"


def all_outside(value: Any, declared: Any, path: str) -> Iterator[tuple[str, str]]:
    """The path of each number in a value that is outside of the limits of its declared type, and what is wrong with it."""
    if not has_limits(declared):
        return
    arguments = get_args(declared)
    match get_origin(declared):
        case origin if origin is Annotated:
            for extra in arguments[1:]:
                if isinstance(extra, msgspec.Meta) and (what := outside(value, extra)):
                    yield path, what
            yield from all_outside(value, arguments[0], path)
        case origin if origin in (Union, types.UnionType):
            for option in arguments:
                yield from all_outside(value, option, path)
        case origin if origin is dict and isinstance(value, dict):
            for key, item in value.items():
                yield from all_outside(item, arguments[1], f"{path}.{key}")
        case origin if origin is tuple and isinstance(value, tuple):
            kinds = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else arguments
            for at, (item, kind) in enumerate(zip(value, kinds)):
                yield from all_outside(item, kind, f"{path}[{at}]")


@functools.cache
def has_limits(declared: Any) -> bool:
    """Whether a declared type, or one that it contains, has limits; those of records are their own."""
    metas = [extra for extra in get_args(declared) if isinstance(extra, msgspec.Meta)]
    own = any(getattr(meta, name) is not None for meta in metas for name in _LIMITS)
    return own or any(map(has_limits, get_args(declared)))
