"""GPU-cluster schedulers on real job logs."""

from forerun.core.slices import Slice

SLICE = Slice(
    domain="forerun.cluster.domain",
    verbs="forerun.cluster.verbs",
    documents={"forerun.bounds/1": "forerun.cluster.bound.document"},
    members={"forerun.trace_readers": ("forerun.cluster.readers",)},
)
