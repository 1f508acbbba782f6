"""The figures of plan files and of measurements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from forerun.core.result.figures import Axis, Figure, by_series

Row = Mapping[str, Any]


def _columns(rows: Sequence[Row], *names: str) -> dict[str, list[Any]]:
    """Some values of rows, by name."""
    return {name: [row[name] for row in rows] for name in names}


def plan_figures(plan: Row, scenario: Row) -> tuple[Figure, ...]:
    """Time of an epoch over block size and threads, and against the bytes in memory.

    Parameters
    ----------
    plan : the content of a plan file.
    scenario : the plan's, which these figures do not need.
    """
    cells = plan.get("cells") or []
    if not cells:
        return ()
    summary = plan["summary"]
    chosen = f"{summary['block_samples']} and {summary['threads']} threads"
    # A plane shows blocks and threads: of the chosen one's workers and cache.
    axes = ("workers", "cache_bytes", "sharing", "cache_policy", "decoder")
    cells = [cell for cell in cells if all(cell.get(name) == summary.get(name) for name in axes)]
    hidden = [bool(cell["hidden"]) for cell in cells]
    blocks = [f"{cell['block_samples']}" for cell in cells]
    threads = [f"{cell['threads']}" for cell in cells]
    columns = _columns(cells, "held_bytes", "total_s")
    return (
        Figure.of(
            "heatmap",
            "plan-cells",
            "Time of an epoch by block size and threads",
            {**columns, "block": blocks, "threads": threads},
            x=Axis("block", "samples a block"),
            y="threads",
            z=Axis("total_s", "time of an epoch", "s"),
            order=dict.fromkeys(blocks),
            caption=f"{sum(hidden)} of {len(cells)} cells hide loading behind the step; the plan takes blocks of {chosen}.",
        ),
        Figure.of(
            "points",
            "plan-memory",
            "Time of an epoch against the bytes held",
            {**columns, "kind": ["hides loading" if hides else "does not hide it" for hides in hidden]},
            x=Axis("held_bytes", "held in memory", "bytes", log=True),
            y=Axis("total_s", "time of an epoch", "s", log=True),
            series="kind",
            caption="Each mark is a configuration that was predicted.",
        ),
    )


def measured_figures(measured: Row) -> tuple[Figure, ...]:
    """Predicted against measured seconds of the cells that were checked, the error of each, waits, and requests.

    Parts that it lacks give no figure.

    Parameters
    ----------
    measured : the content of a measurement file.
    """
    return (
        *_checked(measured.get("checked") or []),
        *_waits(measured.get("waits") or {}),
        *_requests(measured.get("requests") or {}),
    )


def _checked(rows: Sequence[Row]) -> Iterable[Figure]:
    """The cells that were run beside their prediction."""
    if not rows:
        return
    kinds = ["probe" if row["probe"] else "noisy" if row["noisy"] else "held out" for row in rows]
    errors = np.array([float(row["error"]) for row in rows])
    held_out = np.array([kind == "held out" for kind in kinds])
    verdict = f"mean error of those held out {np.abs(errors[held_out]).mean():.1%}" if held_out.any() else ""
    yield Figure.of(
        "points",
        "predicted-measured",
        "Predicted against measured",
        {**_columns(rows, "measured_s", "predicted_s"), "kind": kinds},
        x=Axis("measured_s", "measured", "s", log=True),
        y=Axis("predicted_s", "predicted", "s", log=True),
        series="kind",
        series_label="cell",
        equal=True,
        caption=f"{len(rows)} configurations; {verdict or 'all of them were probes or noisy'}. Equal on the line.",
    )
    yield Figure.of(
        "bar",
        "prediction-error",
        "Error of the prediction",
        {
            "cell": [f"{row['block_samples']} samples, {row['threads']} threads" for row in rows],
            "error": 100 * errors,
        },
        x=Axis("cell", "configuration"),
        y=Axis("error", "predicted over measured, less one", "%"),
        caption="Probes made the prediction, so their own errors say little.",
    )


def _waits(waits: Row) -> Iterable[Figure]:
    """Waits of a probe, with the simulation's over them.

    Parameters
    ----------
    waits : measured and simulated seconds, one a batch.
    """
    measured, simulated = waits.get("measured_s") or [], waits.get("simulated_s") or []
    if not measured or len(measured) != len(simulated):
        return
    runs = {"measured": measured, "simulated": simulated}
    batches = list(range(len(measured)))
    yield Figure.of(
        "line",
        "waits-measured",
        "Waiting for each batch",
        by_series("run", {run: {"batch": batches, "load_s": load_s} for run, load_s in runs.items()}),
        x="batch",
        y=Axis("load_s", "wait", "s"),
        series="run",
        caption=f"The probe of blocks of {waits['block_samples']}, {waits['threads']} threads, and the same simulated "
        "with mean sizes and mean latency. The first wait includes start-up.",
    )


def _requests(requests: Row) -> Iterable[Figure]:
    """Times of single requests against what the model makes of their mean and spread.

    Parameters
    ----------
    requests : quantiles of the measured times, and those of the fitted lognormal.
    """
    curves = {
        kind: {"request_s": values, "share": np.linspace(0, 1, len(values))}
        for kind in ("measured", "model")
        if (values := requests.get(f"{kind}_s"))
    }
    if not curves:
        return
    yield Figure.of(
        "cdf",
        "request-times-measured",
        "Time of a request",
        by_series("of", curves),
        x=Axis("request_s", "from asking to the last byte", "s"),
        y=Axis("share", "share of requests"),
        series="of",
        caption=f"{requests['requests']} requests of the first probe"
        + (", and latencies of the fitted mean and spread (lognormal)." if len(curves) > 1 else "."),
    )
