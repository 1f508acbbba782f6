"""`forerun plan --help` knows the scenario's domain; shells complete the verbs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import forerun
from forerun.core.cli.main import run
from forerun.core.cli.plan import OWN_OPTIONS
from forerun.core.domain import get_domain


def help_of(*words: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert run(["plan", *words, "--help"]) == 0
    return capsys.readouterr().out


def test_every_option_is_of_some_planner() -> None:
    planners = [part for name in forerun.domain_names() if (part := get_domain(name).planner) is not None]
    assert set(OWN_OPTIONS) == {option for part in planners for option in part.options} - {"every_batch"}


@pytest.mark.parametrize("domain", ["cluster", "energy", "loading", "serving", "spot"])
def test_help_shows_the_options_of_the_domain_only(domain: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = help_of(str(forerun.demo(domain).scenario), capsys=capsys)
    assert f"Options of the {domain} domain" in shown and "--objective" in shown
    planner = get_domain(domain).planner
    for option in OWN_OPTIONS:
        has = planner is not None and option in planner.options
        assert (f"--{option.replace('_', '-')}" in shown) == has, option


def test_help_without_a_scenario_says_whose_each_option_is(capsys: pytest.CaptureFixture[str]) -> None:
    shown = " ".join(help_of(capsys=capsys).split())
    assert shown.count("[serving]") == 5 and shown.count("[energy, serving]") == 1


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_get_their_completion(shell: str) -> None:
    def completed(**variables: str) -> str:
        words = [sys.executable, "-m", "forerun"]
        environment = {**os.environ, **variables}
        return subprocess.run(words, capture_output=True, text=True, env=environment, check=False).stdout

    if shell != "bash":  # click asks bash itself for its version first
        assert "_FORERUN_COMPLETE" in completed(_FORERUN_COMPLETE=f"{shell}_source")
    at = "sim" if shell == "fish" else "1"
    assert "simulate" in completed(
        _FORERUN_COMPLETE=f"{shell}_complete", COMP_WORDS="forerun sim", COMP_CWORD=at
    )
