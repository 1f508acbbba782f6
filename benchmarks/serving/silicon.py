"""How right costs from tables of kernels are on servers that none of their coefficients has seen.

    python benchmarks/serving/silicon.py [--json]

Measurements of others: means of time per output token of dense models in 16 and 8 bits, on three programs and three
accelerators, by prompt, answer, clients and accelerators, as published with AIConfigurator. Each family (model, precision,
accelerator, program) is predicted as a closed loop of its clients without think time in the steady state; what servers take
beyond kernels is fitted to the other families and to those of `models.py`. Beside the errors stand those of a constant and
of a line in logarithms that are fitted within the family. Rows with over 10 s to the first token are a group of their own.
The clients' pattern is not published, so times to the first token are not predicted. The files are not part of this project:
`FORERUN_SHARED` names the folder that has `data/serving-llm`. Exit code 1 if they are absent or a family's mean absolute
error is over the bar.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from accuracy import SHARED
from models import seen_of_table
from overheads import Seen, overhead_of
from silicon_rows import BUDGET, MEMORY_SHARE, SEATS, Row, kernels_of, rows, seen_of

from forerun.serving.inputs.clients import Clients
from forerun.serving.inputs.inputs import ScenarioFiles
from forerun.serving.llm.calibration.bottom_up import Overhead
from forerun.serving.llm.calibration.experiment import Load
from forerun.serving.llm.engine.stage import LanguageStage
from forerun.serving.llm.inputs.model import Cost

BAR: Final = 0.10
#: requests of each client before those that count, and those that count
WARM_UP, COUNTED = 2, 2
FILES: Final = ScenarioFiles()


def predicted_ms(row: Row, law: Overhead) -> float:
    """Time per output token in the steady state of the closed loop."""
    seen, clients = seen_of(row), row.clients
    values = seen.coefficients(law)
    count = clients * (WARM_UP + COUNTED + 1)
    # Clients begin one after another, so that they are not in step.
    begin_ms = seen.predicted_ms(law) * row.output * np.arange(clients) / clients
    planned_ms = np.concatenate([begin_ms, np.full(count - clients, begin_ms[-1])])
    draw = np.random.default_rng(0)
    prompt, output = (
        draw.integers(int(most * row.shortest), most + 1, count) for most in (row.prompt, row.output)
    )
    load = Load(planned_ms, prompt, output, clients)
    model = row.server.language_model(load, FILES, 0)
    stage = LanguageStage(replace(model, cost=Cost.of(values)), 1, keep=False)
    stage.run_closed(Clients.single(load.send_ms, most=clients))
    visits, _, requests = stage.record(count)
    each_ms = (visits.end_ms - requests.first_ms) / (output - 1)
    return float(each_ms[clients * WARM_UP : clients * (WARM_UP + COUNTED)].mean())


def within(own: Sequence[Row]) -> tuple[float, float]:
    """Mean absolute errors of a constant and of a line in logarithms, which are fitted to the family itself."""
    tpot_ms = np.array([row.tpot_ms for row in own])
    sizes = [
        (row.prompt, row.output, row.clients, row.server.memory.tensor_parallel)
        for row in own
        if row.server.memory
    ]
    columns = np.column_stack([np.ones(len(own)), np.log(np.array(sizes, dtype=np.float64))])
    line, *_ = np.linalg.lstsq(columns, np.log(tpot_ms), rcond=None)
    constant = float(np.abs(np.median(tpot_ms) / tpot_ms - 1).mean())
    return constant, float(np.abs(np.exp(columns @ line) / tpot_ms - 1).mean())


def graded(found: Sequence[Row], anchors: Sequence[Seen]) -> Iterator[dict[str, Any]]:
    """Every family from a law that is fitted to the others."""
    seen = {row: seen_of(row) for row in found if not row.queued}
    for family in dict.fromkeys(row.family for row in found):
        law = overhead_of([*anchors, *(one for one in seen.values() if one.family != family)])
        own = [row for row in found if row.family == family]
        errors = [predicted_ms(row, law) / row.tpot_ms - 1 for row in own]
        judged = [(row, error) for row, error in zip(own, errors) if not row.queued]
        used = {
            kernels_of(row.program, row.server.software, row.server.memory)[1]
            for row in own
            if row.server.memory
        }
        constant, line = within([row for row, _ in judged])
        print(family, law, file=sys.stderr, flush=True)
        yield {
            "family": family,
            "rows": len(judged),
            "tables": sorted(used),
            "overhead": {name: round(value, 5) for name, value in vars(law).items()},
            "error": round(float(np.mean([abs(error) for _, error in judged])), 4),
            "bias": round(float(np.mean([error for _, error in judged])), 4),
            "constant": round(constant, 4),
            "line": round(line, 4),
            "queued": [round(error, 4) for row, error in zip(own, errors) if row.queued],
            "errors": [
                [row.prompt, row.output, row.clients, row.server.memory.tensor_parallel, round(error, 4)]
                for row, error in judged
                if row.server.memory
            ],
        }


def main() -> int:
    """Predict, print; 1 where a family misses the bar or the measurements are absent."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if not SHARED.is_dir():
        print(f"no measurements at {SHARED}; set FORERUN_SHARED", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        found = rows(Path(folder))
        families = list(graded(found, seen_of_table()))
    figures = {
        "bar": BAR,
        "servers": {
            "seats": SEATS,
            "token_budget": BUDGET,
            "memory_share": MEMORY_SHARE,
        },
        "families": families,
        "missed": [one["family"] for one in families if one["error"] > BAR],
    }
    if given.json:
        print(json.dumps(figures))
    else:
        for one in families:
            print(
                f"{one['family']} ({one['rows']} rows, {', '.join(one['tables'])}): {one['error']:.1%}, bias "
                f"{one['bias']:+.1%}; a constant {one['constant']:.1%}, a line {one['line']:.1%}; queued {one['queued']}"
            )
        print(f"missed: {figures['missed']}")
    return int(bool(figures["missed"]))


if __name__ == "__main__":
    sys.exit(main())
