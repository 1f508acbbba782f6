"""What a result says in words: the largest loss, what the model leaves out, headline figures and next steps."""

from __future__ import annotations

from collections.abc import Mapping

from forerun.spot.policies.restart import Restart
from forerun.spot.scenario import Recorded, Scenario

NOT_MODELLED = (
    "not modelled: stragglers, notice before a removal, write times that depend on the world size; "
    "step times are constant, victims uniform unless the trace names them"
)
SHARES = ("useful", "slowdown", "stall", "lost", "reconfig", "idle", "inflight")


def headline(scenario: Scenario) -> tuple[str, ...]:
    """The figures that are shown first."""
    paid = scenario.prices.known or scenario.prices.on_demand_usd_per_h > 0
    figures = ["steps_completed", "samples_per_s", "useful_share"]
    figures += ["cost_usd", "usd_per_million_samples"] if paid else []
    figures += ["lost_share", "reconfig_share", "idle_share"]
    if scenario.goal.steps:
        figures.insert(0, "finish_h")
    return tuple(figures)


def next_steps(scenario: Scenario) -> tuple[str, ...]:
    """What to try next."""
    if not isinstance(scenario.policy, Restart):  # the others have growth of their own; plans are of restarts
        return ("forerun simulate {scenario} --set policy=restart",)
    other = "immediate" if scenario.growth.kernel_code >= 4 else "hazard"
    turn = f"forerun simulate {{scenario}} --set growth={other}"
    if isinstance(
        scenario.fleet, Recorded
    ):  # one history: a process like it has many, and can be planned for
        return (turn, f"forerun trace fit spot {scenario.fleet.file.path} -o fitted.yaml")
    return (turn, "forerun plan {scenario}")


def why(shares: Mapping[str, float], scenario: Scenario) -> str:
    """The largest loss, in a sentence, and what acts on it."""
    advice = {
        "lost": "work rolled back after losses and growth; checkpoint more often or grow later",
        "reconfig": "pauses to rebuild pipelines; fewer re-plans, or a recovery without restart, may help",
        "idle": "too few nodes for one pipeline; a smaller depth, spares or on-demand nodes may help",
        "stall": "checkpoints that block training; checkpoint less often",
        "slowdown": "stages doubled up on one node",
        "inflight": "the step that was running at the end",
    }
    worst = max(advice, key=lambda line: shares.get(line, 0.0))
    if shares.get(worst, 0.0) < 0.005:
        return f"{shares['useful']:.1%} of the time is useful; nothing else takes half a percent"
    return f"{shares['useful']:.1%} of the time is useful; the largest loss, {shares[worst]:.1%}, is {advice[worst]}"
