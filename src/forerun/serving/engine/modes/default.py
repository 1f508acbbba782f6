"""The default mode: stage by stage where that is exact, else instant by instant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from forerun.serving.engine import Engine
from forerun.serving.engine.outcome import Outcome, Run
from forerun.serving.inputs.clients import UNLIMITED, Sent
from forerun.serving.inputs.inputs import Inputs
from forerun.serving.inputs.routing import as_drawn
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

        before = inputs
        inputs, sent = arrived(before)
        pipeline, arrivals_ms, slo_ms = inputs.pipeline, inputs.arrivals_ms, scenario.latency_limit_ms
        reasons = [*reasons_against(pipeline), *(["observers look on"] if observers else [])]
        if reasons:
            from forerun.serving.engine.events import simulate_events

            run = simulate_events(pipeline, arrivals_ms, slo_ms, observers=observers)
            notes = tuple(f"event loop: {reason}" for reason in reasons)
            return Outcome(inputs, run, before, control, notes, {"way": "event loop"}, sent=sent)
        # What replicas cost follows from their number where it is constant, else also from the last finish.
        changing = control is not None or any(stage.capacity for stage in pipeline.stages)
        record = "latency" if changing and scenario.record == "counts" else ""
        run = simulated(inputs, record)
        return Outcome(inputs, run, before, control, figures={"way": "stage by stage"}, sent=sent)


def arrived(inputs: Inputs) -> tuple[Inputs, Sent | None]:
    """Inputs whose queries arrive as clients send them, in that order; and what the clients did. As they are where no
    query waits for an answer.

    A run on them is the run of the clients: what is sent depends on answers, but no answer on what is sent later.
    """
    clients, (stage, *others) = inputs.clients, inputs.pipeline.stages
    if clients is None:
        return inputs, None
    if (
        not others
        and stage.llm is not None
        and stage.llm.decode is None
        and all(edge.always for edge in stage.edges)
    ):
        from forerun.serving.llm.engine.stage import LanguageStage

        sent = LanguageStage(stage.llm, stage.replicas, keep=False, capacity=stage.capacity).run_closed(
            clients
        )
    else:
        from forerun.serving.engine.events import sent_by_clients

        sent = sent_by_clients(inputs.pipeline, clients)
    pipeline = as_drawn(inputs.pipeline, len(clients))
    if clients.gate < UNLIMITED and stage.llm is not None:
        behind = replace(pipeline.stages[0], llm=replace(stage.llm, passed_ms=sent.passed_ms))
        pipeline = replace(pipeline, stages=(behind, *pipeline.stages[1:]))
    pipeline = pipeline.rows(sent.order)
    return replace(inputs, pipeline=pipeline, arrivals_ms=sent.sent_ms[sent.order], clients=None), sent


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
