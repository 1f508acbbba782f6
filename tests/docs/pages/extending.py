"""Policies of one's own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ..claims import ROOT, Claim


def claims() -> Iterator[Claim]:
    """How long the shown policies are; the first without its imports."""
    page = "docs/development/extending.md"
    policy, scheduler = re.findall(
        r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL
    )
    length = len(policy[policy.index("class ") :].splitlines())
    yield Claim(page, "## A policy in {} lines", (length,))
    yield Claim("docs/index.md", "a policy in {} lines", (length,))
    shown, held = scheduler.split("class Test")
    own = re.sub(r"\n{2,}(?=class)", "\n", shown).strip().splitlines()
    own = [line for line in own if "forerun.cluster.testing" not in line]
    more = f"class Test{held}".strip().splitlines()
    yield Claim(page, "A cluster scheduler is {} lines, and {} more have every law", (len(own), len(more)))


#: what the named test holds
TESTED: Final[dict[tuple[str, str], str]] = {}

#: what defines something, or carries a figure over whose source stands beside it
GIVEN: Final[set[tuple[str, str]]] = set()

#: what was measured once, and nobody can measure again to the digit; how stands beside it
SINGLE: Final[set[tuple[str, str]]] = set()
