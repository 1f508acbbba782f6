"""Estimates of the time left know nothing of compilation."""

from __future__ import annotations

from pathlib import Path

import pytest

from forerun.core.cli.main import run
from forerun.core.result.run import load_result
from forerun.core.study.estimate import Estimate, duration


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("earlier", [0, 7])
def test_the_first_of_every_process_does_not_count(workers: int, earlier: int) -> None:
    now = [0.0]
    estimate = Estimate(workers, clock=lambda: now[0])
    estimate.see(earlier)
    assert estimate.left(100) == ""
    now[0] = 60.0  # every process compiles for a minute
    for count in range(1, workers + 1):
        estimate.see(earlier + count)
        assert estimate.left(100) == "", "nothing but compilation has been seen"
    for count in range(workers + 1, workers + 11):
        now[0] += 0.5
        estimate.see(earlier + count)
        assert estimate.each_s == pytest.approx(0.5)
    assert estimate.left(earlier + workers + 30) == "10 s"


def test_lengths_of_time_in_words() -> None:
    said = [duration(seconds) for seconds in (0.01, 3.14, 99, 150, 5000, 9000)]
    assert said == ["0.1 s", "3.1 s", "99 s", "2 min", "83 min", "2.5 h"]


def test_explain_does_not_multiply_the_first_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that took ten minutes, most of it compiling, says nothing of how long the others take."""
    import json

    import forerun

    result = forerun.simulate(forerun.load(forerun.demo("energy").scenario, ["trials=0", "recurrences=20"]))
    folder = result.save(tmp_path / "run")
    path = folder / "provenance.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "wall_s": 600.0}))
    assert load_result(folder).provenance["wall_s"] == 600.0
    assert run(("explain", str(folder))) == 0
    lines = [
        line
        for line in capfd.readouterr().err.splitlines()
        if "more at most" in line or "simulations" in line
    ]
    assert lines[0].startswith("at most ") and " h" not in lines[0] and " min" not in lines[0]
    assert len(lines) >= 2 and lines[1].endswith(" s or less"), lines
