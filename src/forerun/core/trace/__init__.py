"""What the outside world does, as data: traces (sorted tables of events) and signals (values over time)."""

from forerun.core.trace.signal import Signal
from forerun.core.trace.table import Trace

__all__ = ["Signal", "Trace"]
