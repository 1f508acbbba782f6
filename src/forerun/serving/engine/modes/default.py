"""The default mode: stage by stage where that is exact, else instant by instant."""

from __future__ import annotations

from collections.abc import Sequence

from forerun.serving.engine import Engine
from forerun.serving.engine.outcome import Outcome, Run
from forerun.serving.inputs.inputs import Inputs
from forerun.serving.observer import Observer


class Default(Engine):
    """The semantics of this package."""

    name = "default"

    def run(self, inputs: Inputs, observers: Sequence[Observer]) -> Outcome:
        """A tuner decides first, where one changes replicas; then the pipeline is simulated with its changes."""
        scenario, control = inputs.scenario, None
        if scenario.tuned:
            from forerun.serving.engine.tuning import controlled

            inputs, control = controlled(inputs)
        # The kernels are compiled; they are imported only when something is simulated.
        from forerun.serving.engine.stagewise import reasons_against

        pipeline, arrivals_ms, slo_ms = inputs.pipeline, inputs.arrivals_ms, scenario.latency_limit_ms
        reasons = [*reasons_against(pipeline), *(["observers look on"] if observers else [])]
        if reasons:
            from forerun.serving.engine.events import simulate_events

            run = simulate_events(pipeline, arrivals_ms, slo_ms, observers=observers)
            notes = tuple(f"event loop: {reason}" for reason in reasons)
            return Outcome(inputs, run, control, notes, {"way": "event loop"})
        # What replicas cost follows from their number where it is constant, else also from the last finish.
        changing = control is not None or any(stage.capacity for stage in pipeline.stages)
        record = "latency" if changing and scenario.record == "counts" else ""
        return Outcome(inputs, simulated(inputs, record), control, figures={"way": "stage by stage"})


def simulated(inputs: Inputs, record: str = "") -> Run:
    """The pipeline of some inputs, stage by stage.

    Parameters
    ----------
    inputs : whose pipeline has a compiled form (see `reasons_against`) and the replicas that a tuner has decided.
    record : `counts`, `latency` or `full`, as in a scenario (default: as the inputs' scenario says).
    """
    record = record or inputs.scenario.record
    pipeline, arrivals_ms, slo_ms = inputs.pipeline, inputs.arrivals_ms, inputs.scenario.latency_limit_ms
    if pipeline.serves_models:
        from forerun.serving.llm.engine.pipeline import simulate_mixed

        return simulate_mixed(pipeline, arrivals_ms, slo_ms, keep=record == "full")
    from forerun.serving.engine.stagewise import simulate_stagewise

    return simulate_stagewise(pipeline, arrivals_ms, slo_ms, record=record)
