"""Published profiles and results of the Oobleck artefact, read from `published.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from forerun.replication.oobleck.simulator import ElasticJob

_DATA: Final[dict[str, Any]] = json.loads(Path(__file__).with_name("published.json").read_text())


def _job(values: dict[str, Any]) -> ElasticJob:
    """A job of the artefact, its tables keyed by numbers of nodes."""
    tables: dict[str, Any] = {
        name: {int(nodes): ms for nodes, ms in values[name].items()}
        for name in ("step_ms", "pause_ms_by_nodes")
        if name in values
    }
    return ElasticJob(**{**values, **tables})


#: the artefact's jobs by model: (Oobleck's, Varuna's, Varuna's checkpoint in ms)
ELASTIC_JOBS: Final[dict[str, tuple[ElasticJob, ElasticJob, int]]] = {
    model: (_job(jobs["oobleck"]), _job(jobs["varuna"]), jobs["varuna_checkpoint_ms"])
    for model, jobs in _DATA["jobs"].items()
}
VARUNA_EVERY_STEPS: Final[int] = _DATA["varuna_every_steps"]
ELASTIC_TRACES: Final = ("6h", "3h", "1h", "30m", "10m", "5m")
#: samples a second that the artefact prints, by system, model and trace
ELASTIC_RESULTS: Final[dict[str, dict[str, dict[str, float]]]] = _DATA["results"]
