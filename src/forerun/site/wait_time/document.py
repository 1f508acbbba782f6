"""The file of a back-test of waits: a measurement with figures of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from forerun.core.documents import MeasurementDocument
from forerun.core.result.figures import Figure


class BackTestDocument(MeasurementDocument):
    """A back-test of waits."""

    def figures(self, content: Mapping[str, Any]) -> tuple[Figure, ...]:
        """Whether quantiles are what they promise, and stay so."""
        from forerun.site.wait_time.figures import figures

        return figures(content)


DOCUMENT: Final = BackTestDocument()
