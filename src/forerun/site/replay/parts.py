"""The file of a back-test of replays: a measurement with a figure of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from forerun.core.documents import MeasurementDocument
from forerun.core.result.figures import Axis, Figure


class PartsDocument(MeasurementDocument):
    """A back-test of replays."""

    def figures(self, content: Mapping[str, Any]) -> tuple[Figure, ...]:
        """Mean waits of each part beside history."""
        scored = [row for row in content["splits"] if row["recorded_mean_h"] is not None]
        whose = {"history": "recorded_mean_h", "replay": "replayed_mean_h"}
        if not scored:
            return ()
        return (
            Figure.of(
                "bar",
                "replay-parts",
                "Mean wait of each part",
                {
                    "part": [row["split"] for row in scored for _ in whose],
                    "hours": [row[name] for row in scored for name in whose.values()],
                    "who": [who for _ in scored for who in whose],
                },
                x=Axis("part", "part of the log"),
                y=Axis("hours", "mean wait", "h"),
                series="who",
                caption="Machine and policy are those known before each part.",
            ),
        )


DOCUMENT: Final = PartsDocument()
