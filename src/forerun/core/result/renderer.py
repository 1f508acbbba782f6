"""What draws results. The report lies above them: they look its functions up by name, in what the front door sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: finds a function of the report by its name
find: Callable[[str], Callable[..., Any]]
