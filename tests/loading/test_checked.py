"""Predictions of a measurement file compared with what it measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forerun.core.cli.main import run as command_line
from forerun.core.errors import CheckFailed, StoreError, UsageError
from forerun.core.report import write_page
from forerun.core.report.stored import open_stored
from forerun.loading.figures.saved import measured_figures
from forerun.loading.summary.measured import check_measured


def measurement(
    *errors: float, verified: float | None = 0.01, quiet: bool = True, **more: Any
) -> dict[str, Any]:
    """A choice predicted at 600 samples/s (570 to 630), measured with an error, and cells with theirs."""
    cells = [
        {"block_samples": 4, "threads": 2, "measured_s": 1.0, "predicted_s": 1 + error, "error": error,
         "probe": False, "noisy": False}
        for error in errors
    ]  # fmt: skip
    return {
        "format": "forerun.measurement/1", "domain": "loading", "host": {"quiet": quiet}, "checked": cells,
        "verified_error": verified, "verified_samples_per_s": None if verified is None else 500.0,
        "samples_per_s": 600.0, "samples_per_s_interval": [570.0, 630.0],
    } | more  # fmt: skip


def test_good_predictions_hold() -> None:
    said = check_measured(measurement(0.02, -0.04), "m")
    assert "the choice ran at 500 samples/s; 470.3 to 519.8 were predicted" in said
    assert "2 cells held out are predicted within 3.0% in the mean, 4.0% at most" in said
    probe = measurement(0.02)
    probe["checked"][0] |= {"error": 0.9, "probe": True}
    noisy = measurement(0.02, 0.01)
    noisy["checked"][0] |= {"error": 0.9, "noisy": True}
    assert "held out" not in check_measured(probe, "m")
    assert "1 cells were too noisy to count" in check_measured(noisy, "m")


def test_bad_ones_do_not_and_noise_judges_nothing() -> None:
    for bad, message in (
        (
            measurement(0.02, verified=0.08),
            r"the choice ran at 500 samples/s; 439\.8 to 486\.1 were predicted",
        ),
        (measurement(0.06, 0.05), r"5\.5% in the mean, 6\.0% at most; 5% and 10% are allowed"),
        (measurement(0.01, 0.01, 0.11), "11.0% at most; 5% and 10% are allowed"),
    ):
        with pytest.raises(CheckFailed, match=message):
            check_measured(bad, "m")
        bad["host"]["quiet"] = False
        assert "not judged, the machine was too noisy" in check_measured(bad, "m")
    with pytest.raises(UsageError, match="measure with --check"):
        check_measured(measurement(verified=None), "m")
    for broken in (
        {"host": None},
        {"checked": [{}]},
        {"samples_per_s": 0.0},
        {"samples_per_s_interval": ["x", 1]},
    ):
        with pytest.raises(StoreError, match="is no measurement of loading"):
            check_measured(measurement(0.02) | broken, "m")


def test_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.json"
    path.write_text(json.dumps(measurement(0.01)))
    assert command_line(["check", str(path)]) == 0
    assert "held out" in capsys.readouterr().out
    path.write_text(json.dumps(measurement(0.2)))
    assert command_line(["check", str(path)]) == 4
    for domain in ("energy", "nowhere", 5):
        path.write_text(json.dumps(measurement(0.01, domain=domain)))
        assert command_line(["check", str(path)]) != 0
        assert "is no plan but a measurement" in capsys.readouterr().err
    drawn = measured_figures(measurement(0.01))
    assert [figure.id for figure in drawn] == ["predicted-measured", "prediction-error"]


def test_parts_that_are_no_longer_measured_are_shown_as_rows(tmp_path: Path) -> None:
    """Older files contain jobs, nodes and a pace beside their predictions."""
    rows = [{"job": 0, "epoch": 0, "samples_per_s": 5.0, "predicted_samples_per_s": 5.1}]
    path = tmp_path / "old.json"
    path.write_text(json.dumps(measurement(0.01, jobs=rows, pace={"policy": "by_interval", "looks": []})))
    stored = open_stored(path)
    assert stored.tables["jobs"] == rows
    write_page([stored], tmp_path / "page.html")
    assert "predicted samples" in (tmp_path / "page.html").read_text().lower()
