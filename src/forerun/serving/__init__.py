"""Inference pipelines and language models behind queues: replicas, batch sizes, hardware."""

from forerun.core.slices import Slice

SLICE = Slice(
    domain="forerun.serving.domain",
    verbs="forerun.serving.verbs",
    measures={"serving": "forerun.serving.measure.command"},
    wings={"llm": {"confidence": 0.9}},
    members={
        "forerun.arrival_processes": ("forerun.serving.traces",),
        "forerun.trace_readers": ("forerun.serving.readers",),
    },
)
