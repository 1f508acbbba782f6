"""When jobs of a site start: a forecast where forecasts do well, else why there is none."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from forerun.site.survey.files import Kind, SiteFile
from forerun.site.survey.starts import Start, Starts

DAY_S = 86_400


def log(path: Path, *, requests: bool = True) -> SiteFile:
    """One node of four GPUs for 25 days, in order of submission, waits that a forecast sees coming."""
    rng = np.random.default_rng(5)
    count = 230
    submit_s = np.sort(rng.integers(0, 25 * DAY_S, count))
    run_s = rng.lognormal(8.8, 0.9, count).clip(60, 40_000).astype(int)
    run_s = (run_s * 0.9 * 25 * DAY_S / run_s.sum()).astype(int)
    request_s = (run_s * rng.uniform(1.0, 3.0, count)).astype(int)
    free_s = 0
    rows = ["id,submit_s,start_s,end_s,nodes,gpus,requested_s,partition,user"]
    for at in range(count):
        start_s = max(int(submit_s[at]), free_s)
        free_s = start_s + int(run_s[at])
        asked = str(request_s[at]) if requests else ""
        times = ",".join(str(1_700_000_000 + value) for value in (int(submit_s[at]), start_s, free_s))
        rows.append(f"{at},{times},1,4,{asked},main,u{at % 5}")
    path.write_text("\n".join(rows) + "\n")
    return SiteFile(path, Kind.LOG, "job_history", gave="jobs")


def test_a_forecast_where_forecasts_do_well(tmp_path: Path) -> None:
    starts = Starts([log(tmp_path / "log.csv")], "")
    said = starts.of("main", 4, 7200.0)
    assert isinstance(said, Start), said
    assert 0 <= said.even_odds_s <= said.nine_in_ten_s
    assert said.answers >= 40
    assert "were within 80 % intervals" in said.how


def test_no_forecast_says_why(tmp_path: Path) -> None:
    starts = Starts([log(tmp_path / "log.csv", requests=False)], "")
    said = starts.of("main", 4, 7200.0)
    assert isinstance(said, str)
    assert said.startswith("no forecast: no job has a requested time")
