"""Recurring training jobs: batch size and power limit."""

from forerun.core.slices import Slice

SLICE = Slice(
    domain="forerun.energy.domain",
    measures={"energy": "forerun.energy.measure.command"},
    members={"forerun.trace_readers": ("forerun.energy.readers",)},
)
