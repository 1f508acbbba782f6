"""`forerun docs` prints what the domains use: no key, policy, table or figure is left out."""

from __future__ import annotations

import json
import re

import pytest

import forerun
from forerun.core.cli.main import run
from forerun.core.domain import get_domain
from forerun.core.reference import Reference, reference
from forerun.core.scenarios import load

DOMAINS = forerun.domain_names()


@pytest.mark.parametrize("domain", DOMAINS)
def test_every_key_of_the_schema_and_every_policy_is_there(domain: str) -> None:
    found = reference(get_domain(domain))
    known = [*found.sections, *(policy.section for policy in found.policies)]
    keys = {section.name: {key.name for key in section.keys} for section in known}
    schema = forerun.schema(domain)
    for part in (schema, *schema["$defs"].values()):
        tag = part["properties"].get("name", {}).get("const", "")
        twofold = {
            name for name, one in part["properties"].items() if "as a quantity" in str(one.get("description"))
        }
        wanted = set(part["properties"]) - twofold - ({"name"} if tag else set())
        assert wanted in keys.values() or wanted == {"path", "sha256"}, (tag, wanted)
    assert {(one.kind, one.section.name) for one in found.policies} == {
        (one.kind, one.name) for one in forerun.policies(domain)
    }


def test_a_key_has_its_value_unit_default_and_meaning() -> None:
    found = reference(get_domain("spot"))
    (job,) = (section for section in found.sections if section.name == "JobSpec")
    keys = {key.name: key for key in job.keys}
    assert (keys["depth"].value, keys["depth"].default) == ("whole number >= 1", "")
    assert keys["depth"].meaning == "nodes in a pipeline."
    assert (keys["write_s"].unit, keys["write_s"].default) == ("s", "0.0")
    assert keys["reconfig_rule"].value == "restart | extend"
    assert keys["step_s"].value == "number > 0 by whole number"
    assert "write_s" not in job.about and job.about.startswith("The job: its shape")


@pytest.mark.parametrize("domain", DOMAINS)
def test_every_table_and_figure_of_a_run_is_there(domain: str) -> None:
    scenario = load(get_domain(domain).folder / "starter" / "scenario.yaml")
    result, found = forerun.simulate(scenario), reference(get_domain(domain))
    assert {table.schema.name for table in result.tables.values()} <= {table.name for table in found.tables}
    for figure in get_domain(domain).figures(result):
        assert any(drawn_as(figure.id, figure.title, pair) for pair in found.figures.items()), figure.id


def drawn_as(identifier: str, title: str, pair: tuple[str, str]) -> bool:
    """Whether a figure is the listed one, whose words of the run are dots."""
    said = (re.escape(part).replace(r"\.\.\.", ".*") for part in pair)
    return all(re.fullmatch(part, text) for part, text in zip(said, (identifier, title), strict=True))


@pytest.mark.parametrize("domain", DOMAINS)
def test_the_command_prints_all_or_a_part(domain: str, capsys: pytest.CaptureFixture[str]) -> None:
    found: Reference = reference(get_domain(domain))
    assert run(["docs", domain]) == 0
    text = capsys.readouterr().out
    for title in ("Keys of Scenario", *(f"Policy {one.section.name} ({one.kind})" for one in found.policies)):
        assert title in text
    assert all(f"Table {one.name}" in text for one in found.tables) and all(
        one in text for one in found.figures
    )
    assert run(["docs", domain, "figures", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["figures"] == found.figures and "keys" not in data


def test_an_unknown_domain_names_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["docs", "clutser"]) == 2
    assert "cluster" in capsys.readouterr().err
