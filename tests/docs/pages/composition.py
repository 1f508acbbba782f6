"""Rooms that feed each other: the files of the example, and what comes of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

from ..claims import ROOT, Claim


def claims() -> Iterator[Claim]:
    """What the example's files say."""
    from forerun.core.units import parse_quantity

    page = "docs/composition.md"
    pictures, cluster = written(page, "pictures.yaml"), written(page, "deadlines.yaml")
    yield Claim(
        page,
        "Pictures of {} kB are single objects in an object store, {} ms away. {} threads per node",
        (
            pictures["dataset"]["sample_bytes"]["mean_bytes"] / 1e3,
            parse_quantity(pictures["store"]["latency_s"]["mean_s"], "ms"),
            pictures["loader"]["threads"],
        ),
    )
    nodes = cluster["machines"]["nodes"][0]
    jobs = cluster["trace"]["generate"]["jobs"]
    yield Claim(page, "{} jobs with deadlines share {} GPUs", (jobs, nodes["count"] * nodes["gpus"]))
    merged = re.search(r"--set layout\.block_samples=(\d+)", (ROOT / page).read_text(encoding="utf-8"))
    assert merged
    yield Claim(page, "what it is worth: {} pictures per block", (int(merged[1]),))


def written(document: str, name: str) -> Any:
    """A YAML file that a document tells its reader to write."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return yaml.safe_load(text.split(f"# file: {name}\n", 1)[1].split("```", 1)[0])


#: what the named test holds
TESTED: Final[dict[tuple[str, str], str]] = {
    ("docs/composition.md", "| |"): "tests/docs/test_figures.py::test_the_composed_figures_come_out",
}

#: what defines something, or carries a figure over whose source stands beside it
GIVEN: Final[set[tuple[str, str]]] = {
    ("docs/composition.md", "| profile |"),
    ("docs/composition.md", "Time 0 of price and carbon is time 0 of the job log."),
}

#: what was measured once, and nobody can measure again to the digit; how stands beside it
SINGLE: Final[set[tuple[str, str]]] = set()
