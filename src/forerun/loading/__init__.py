"""Training-data loading: whether it hides behind compute, and what would."""

from forerun.core.slices import Slice

SLICE = Slice(
    domain="forerun.loading.domain",
    verbs="forerun.loading.verbs",
    measures={"loading": "forerun.loading.measure.command"},
)
