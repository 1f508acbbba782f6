"""Training on preemptible instances and on clusters whose nodes fail."""

from forerun.core.slices import Slice

SLICE = Slice(
    domain="forerun.spot.domain",
    measures={"checkpoint": "forerun.spot.measure.command"},
    members={"forerun.trace_readers": ("forerun.spot.readers",)},
)
