"""Real jobs under the scheduling policies of the cluster domain.

The policy object that decides in a simulation decides here over processes, by the wall clock. A controller
(`live.controller`) turns observations into commands and is a function of its journal; an engine (`live.engines`) carries
the commands out on nodes and reports what it observes; a training program reports through `live.job`.
"""

from forerun.core.slices import Slice

SLICE = Slice(
    verbs="forerun.live.verbs",
    measures={"cluster": "forerun.live.measure"},
    figures={"cluster": "forerun.live.figures"},
)
