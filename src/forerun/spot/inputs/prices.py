"""What spot nodes cost over time: a scenario's prices as signals, and the money paid for a fleet."""

from __future__ import annotations

from pathlib import Path

from forerun.core.errors import TraceError
from forerun.core.trace.reader import options_from, read_trace
from forerun.core.trace.signal import Signal
from forerun.core.trace.steps import signal
from forerun.spot.scenario import SpotPrice

UNIT = "usd_per_h"


def spot_price(prices: SpotPrice) -> Signal:
    """Dollars an hour and node from 0 on; a recording begins at its first change, and its last price stays.

    Raises TraceError for files without prices, or those of several zones or machines.
    """
    if prices.spot_file is not None:
        chosen = prices.spot_file
        options = options_from(tuple(f"{name}={value}" for name, value in chosen.options.items()))
        trace = read_trace(Path(chosen.file.path), chosen.format, options=options)
        if trace.kind != "prices":
            raise TraceError.at(chosen.file.path, f"contains {trace.kind}, not prices")
        markets = sorted(set(zip(trace["zone"].tolist(), trace["machine"].tolist(), strict=True)))
        if len(markets) > 1:
            named = ", ".join("/".join(market) for market in markets[:4])
            raise TraceError.at(
                chosen.file.path,
                f"contains prices of {len(markets)} markets ({named}); choose one by options",
            )
        changes = dict(zip(trace["t_s"].tolist(), trace["usd_per_h"].tolist(), strict=True))
        return Signal(list(changes), list(changes.values()), unit=UNIT, name=str(chosen.file.path))
    series = signal(prices.spot_series, unit=UNIT, name="prices.spot_series")
    return series if series is not None else Signal.constant(prices.spot_usd_per_h, unit=UNIT)
