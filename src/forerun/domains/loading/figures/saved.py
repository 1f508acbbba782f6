"""The figures of plan files and of measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from forerun.result.figures import Axis, Figure


def plan_figures(plan: Mapping[str, Any], scenario: Mapping[str, Any]) -> tuple[Figure, ...]:
    """Time of an epoch over block size and threads, and against what is held in memory."""
    cells = plan.get("cells") or []
    if not cells:
        return ()
    summary = plan["summary"]
    chosen = f"{summary['block_samples']} and {summary['threads']} threads"
    # A plane shows blocks and threads: of the chosen one's workers, cache and placement.
    axes = ("workers", "cache_bytes", "placement")
    cells = [cell for cell in cells if all(cell.get(name) == summary.get(name) for name in axes)]
    hidden = sum(bool(cell["hidden"]) for cell in cells)
    blocks = [f"{cell['block_samples']}" for cell in cells]
    return (
        Figure(
            id="plan-cells",
            title="Time of an epoch by block size and threads",
            kind="heatmap",
            x=Axis("block", "samples a block"),
            y=Axis("threads", "threads"),
            z=Axis("total_s", "time of an epoch", "s"),
            data={
                "block": blocks,
                "threads": [f"{cell['threads']}" for cell in cells],
                "total_s": [float(cell["total_s"]) for cell in cells],
            },
            order=tuple(dict.fromkeys(blocks)),
            caption=f"{hidden} of {len(cells)} cells hide loading behind the step; the plan takes blocks of {chosen}.",
        ),
        Figure(
            id="plan-memory",
            title="Time of an epoch against the bytes held",
            kind="points",
            x=Axis("held_bytes", "held in memory", "bytes", log=True),
            y=Axis("total_s", "time of an epoch", "s", log=True),
            data={
                "held_bytes": [float(cell["held_bytes"]) for cell in cells],
                "total_s": [float(cell["total_s"]) for cell in cells],
                "kind": ["hides loading" if cell["hidden"] else "does not hide it" for cell in cells],
            },
            series="kind",
            caption="Each mark is a configuration that was predicted.",
        ),
    )


def measured_figures(measured: Mapping[str, Any]) -> tuple[Figure, ...]:
    """Predicted against measured seconds of the cells that were checked, the error of each, and what a pace did."""
    return (
        _checked(measured.get("checked") or [])
        + _waits(measured.get("waits") or {})
        + _requests(measured.get("requests") or {})
        + _pace(measured.get("pace") or {})
    )


def _waits(waits: Mapping[str, Any]) -> tuple[Figure, ...]:
    """Waits of a probe, with the simulation's over them."""
    measured, simulated = waits.get("measured_s") or [], waits.get("simulated_s") or []
    if not measured or len(measured) != len(simulated):
        return ()
    count = len(measured)
    return (
        Figure(
            id="waits-measured",
            title="Waiting for each batch",
            kind="line",
            x=Axis("batch", "batch"),
            y=Axis("load_s", "wait", "s"),
            data={
                "batch": [*range(count), *range(count)],
                "load_s": [*measured, *simulated],
                "run": ["measured"] * count + ["simulated"] * count,
            },
            series="run",
            caption=f"The probe of blocks of {waits['block_samples']}, {waits['threads']} threads, and the same simulated "
            "with mean sizes and mean latency. The first wait includes start-up.",
        ),
    )


def _requests(requests: Mapping[str, Any]) -> tuple[Figure, ...]:
    """Times of single requests against what the model makes of their mean and spread."""
    kinds = [kind for kind in ("measured", "model") if requests.get(f"{kind}_s")]
    if not kinds:
        return ()
    data: dict[str, list[Any]] = {"request_s": [], "share": [], "of": []}
    for kind in kinds:
        values = requests[f"{kind}_s"]
        data["request_s"] += values
        data["share"] += np.linspace(0, 1, len(values)).tolist()
        data["of"] += [kind] * len(values)
    return (
        Figure(
            id="request-times-measured",
            title="Time of a request",
            kind="cdf",
            x=Axis("request_s", "from asking to the last byte", "s"),
            y=Axis("share", "share of requests"),
            data=data,
            series="of",
            caption=f"{requests['requests']} requests of the first probe"
            + (", and latencies of the fitted mean and spread (lognormal)." if len(kinds) > 1 else "."),
        ),
    )


def _pace(pace: Mapping[str, Any]) -> tuple[Figure, ...]:
    """Threads over the batches of all epochs."""
    looks = pace.get("looks") or []
    if not looks:
        return ()
    last = {look["epoch"]: int(look["batch"]) for look in looks}
    before = {epoch: sum(last[earlier] for earlier in last if earlier < epoch) for epoch in last}
    return (
        Figure(
            id="pace",
            title="Threads that may read",
            kind="step",
            x=Axis("batch", "batches taken"),
            y=Axis("threads", "threads"),
            data={
                "batch": [0, *(before[look["epoch"]] + int(look["batch"]) for look in looks)],
                "threads": [int(looks[0]["threads_before"]), *(int(look["threads"]) for look in looks)],
            },
            caption=f"{len(looks)} looks of {pace['policy']} in {len(last)} epochs of the real loader.",
        ),
    )


def _checked(rows: Sequence[Mapping[str, Any]]) -> tuple[Figure, ...]:
    if not rows:
        return ()
    kinds = ["probe" if row["probe"] else "noisy" if row["noisy"] else "held out" for row in rows]
    errors = np.array([float(row["error"]) for row in rows])
    held_out = np.array([kind == "held out" for kind in kinds])
    verdict = f"mean error of those held out {np.abs(errors[held_out]).mean():.1%}" if held_out.any() else ""
    names = [f"{row['block_samples']} samples, {row['threads']} threads" for row in rows]
    return (
        Figure(
            id="predicted-measured",
            title="Predicted against measured",
            kind="points",
            x=Axis("measured_s", "measured", "s", log=True),
            y=Axis("predicted_s", "predicted", "s", log=True),
            data={
                "measured_s": [float(row["measured_s"]) for row in rows],
                "predicted_s": [float(row["predicted_s"]) for row in rows],
                "kind": kinds,
            },
            series="kind",
            series_label="cell",
            equal=True,
            caption=f"{len(rows)} configurations; {verdict or 'all of them were probes or noisy'}. Equal on the line.",
        ),
        Figure(
            id="prediction-error",
            title="Error of the prediction",
            kind="bar",
            x=Axis("cell", "configuration"),
            y=Axis("error", "predicted over measured, less one", "%"),
            data={"cell": names, "error": (100 * errors).tolist()},
            caption="Probes made the prediction, so their own errors say little.",
        ),
    )
