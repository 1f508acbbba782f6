"""What a notebook shows of scenarios, ledgers, plans and figures, in every domain."""

from __future__ import annotations

from pathlib import Path

import pytest

import forerun
from forerun.core.result.ledger import Ledger
from forerun.core.scenario.spec import to_data, yaml_text

from .test_observers import SHORT

by_domain = pytest.mark.parametrize("domain", forerun.domain_names())


@by_domain
def test_scenarios_are_a_line_and_in_a_notebook_what_they_say(domain: str, tmp_path: Path) -> None:
    scenario = forerun.load(forerun.demo(domain).scenario)
    assert repr(scenario).startswith(f"<{domain} scenario: sets ") and "\n" not in repr(scenario)
    assert len(repr(scenario)) < 300
    titled = scenario.with_(title="<script>x</script>") if hasattr(scenario, "title") else scenario
    assert ("title" in repr(titled)) == hasattr(scenario, "title") and "<script" not in titled._repr_html_()
    path = tmp_path / "scenario.yaml"
    path.write_text(yaml_text(titled))
    assert to_data(forerun.load(path)) == to_data(titled)


@by_domain
def test_results_have_the_figures_of_their_page(domain: str) -> None:
    result = forerun.simulate(forerun.load(forerun.demo(domain).scenario, SHORT[domain]))
    figures = result.figures
    assert len(figures) >= len(result.ledgers) > 0
    assert "Chart" in type(forerun.chart(next(iter(figures.values())))).__name__
    assert next(iter(figures.values()))._repr_svg_().startswith("<svg")
    for ledger in result.ledgers:
        assert repr(ledger).startswith(f"<ledger {ledger.name}: ") and repr(ledger).count("%") == len(
            ledger.parts
        )


def test_ledgers_show_amounts_and_shares() -> None:
    assert (
        repr(Ledger("energy", "j", 8.0, {"useful": 6.0, "lost": 2.0}))
        == "<ledger energy: 8 J; useful 75.0%, lost 25.0%>"
    )


@pytest.mark.parametrize("domain", ["energy", "loading", "serving", "spot"])
def test_plans_show_their_figures_and_reason(domain: str) -> None:
    more = ["goal.deadline=20h"] if domain == "spot" else []
    plan = forerun.plan(forerun.load(forerun.demo(domain).scenario, SHORT[domain] + more))
    assert repr(plan).startswith("<plan: ") and plan.why in repr(plan) and "\n" not in repr(plan)
    shown = plan._repr_html_()
    assert "<table>" in shown and "<b>why:</b>" in shown
