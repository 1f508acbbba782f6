"""Ranges of numbers that scenarios share, as annotated types: a value outside is an error with its line."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

#: a number above 0
Positive: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]
#: a number from 0 on
NotNegative: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]
#: a whole number from 1 on
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
