"""Real queues: their history, replays, what would have been otherwise, and when a job will start."""

from forerun.core.slices import Slice

SLICE = Slice(
    verbs="forerun.site.verbs",
    documents={
        "forerun.site/1": "forerun.site.survey.document",
        "forerun.replay/1": "forerun.site.replay.document",
        "forerun.measurement/1 replay": "forerun.site.replay.parts",
        "forerun.measurement/1 wait-time": "forerun.site.wait_time.document",
    },
)
