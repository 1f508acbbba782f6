"""Pages in a real browser: they load from a file, draw every chart, complain of nothing, and suit the reader."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forerun.core.domain import get_domain
from forerun.core.report import write_page
from forerun.core.report.compose import write_html
from forerun.replication.page import reproduction_page

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("gallery_domain")]

#: elements that hold what a chart draws, axes and legends apart
_MARKS = ", ".join(f"g.role-mark.mark-{kind} path" for kind in ("line", "area", "rect", "symbol"))


#: pairs of different texts of one chart that lie on each other
_OVERLAPS = """(() => {
  const found = [];
  for (const svg of document.querySelectorAll('.chart svg')) {
    const boxes = [...svg.querySelectorAll('text')]
      .filter((t) => t.textContent && getComputedStyle(t).opacity !== '0' && t.getAttribute('opacity') !== '0')
      .map((t) => [t.textContent, t.getBoundingClientRect()]);
    boxes.forEach(([one, a], at) => boxes.slice(at + 1).forEach(([other, b]) => {
      if (one === other) return;
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > 1 && high > 4) found.push([svg.closest('figure').id, one, other]);
    }));
  }
  return found;
})()"""


@pytest.fixture
def page_file(gallery: Any, tmp_path: Path) -> Path:
    return write_page([gallery.result()], tmp_path / "page.html")


def test_every_chart_is_drawn_without_complaint(
    open_page: Callable[..., Any], page_file: Path, gallery: Any
) -> None:
    page = open_page(page_file)
    expected = len(gallery.every_kind()) - 1  # the empty figure says so in words
    assert page.value(
        "[document.documentElement.dataset.drawn, document.documentElement.dataset.failed]"
    ) == [
        str(expected),
        "0",
    ]
    counts = page.value(
        "[...document.querySelectorAll('.chart')].map(c => [c.id, c.querySelectorAll('svg').length, "
        f"c.querySelectorAll('{_MARKS}').length])"
    )
    assert len(counts) == expected
    for name, drawings, marks in counts:
        assert drawings == 1 and marks >= 1, name
    by_name = {name: marks for name, _, marks in counts}
    assert by_name["figure-timeline-chart"] == 240
    assert by_name["figure-energy-map-chart"] == 240
    assert by_name["figure-many-chart"] == 12
    assert page.complaints() == []


def test_nothing_else_is_asked_for(open_page: Callable[..., Any], page_file: Path) -> None:
    page = open_page(page_file)
    assert page.requests() == [page_file.resolve().as_uri()]


def test_hostile_names_do_nothing(open_page: Callable[..., Any], page_file: Path, gallery: Any) -> None:
    page = open_page(page_file)
    assert page.value("document.querySelectorAll('img').length") == 0
    assert page.value("document.querySelectorAll('script:not([type])').length") == 2
    labels = page.value("document.querySelector('#figure-hostile-series .legend').textContent")
    assert gallery.HOSTILE in labels and gallery.BREAKOUT in labels
    drawn = page.value("document.querySelector('#figure-hostile-chart svg').textContent")
    assert gallery.HOSTILE in drawn


def test_the_policy_stops_what_is_not_ours(open_page: Callable[..., Any], page_file: Path) -> None:
    page = open_page(page_file)
    page.value(
        "(() => { const s = document.createElement('script'); s.textContent = 'window.pwned = 1';"
        " document.body.append(s); })()"
    )
    assert page.value("typeof window.pwned") == "undefined"
    page.value("(() => { try { window.made = new Function('return 1')(); } catch (e) {} })()")
    assert page.value("typeof window.made") == "undefined"
    assert any("Content Security Policy" in text for text in page.complaints())


def test_light_and_dark_differ_and_print_is_light(open_page: Callable[..., Any], page_file: Path) -> None:
    page = open_page(page_file)
    look = (
        "[getComputedStyle(document.body).backgroundColor, "
        "getComputedStyle(document.querySelector('.chart g.mark-line path')).stroke]"
    )
    light, picture = page.value(look), page.screenshot()
    page.media("dark")
    dark, dark_picture = page.value(look), page.screenshot()
    # The drawing follows without being drawn again: its colours are CSS variables.
    assert light[0] != dark[0] and light[1] != dark[1]
    assert picture != dark_picture
    page.media("dark", "print")
    assert page.value(look) == ["rgb(255, 255, 255)", light[1]]


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_nothing_is_wider_than_the_screen(open_page: Callable[..., Any], page_file: Path, width: int) -> None:
    page = open_page(page_file, width=width)
    assert page.value("document.documentElement.scrollWidth") <= width
    outside = page.value(
        "[...document.querySelectorAll('.chart svg')].filter(s => s.getBoundingClientRect().right > "
        "s.closest('figure').getBoundingClientRect().right + 1).map(s => s.closest('figure').id)"
    )
    assert outside == []


@pytest.mark.parametrize("width", [360, 1280])
def test_no_text_of_a_chart_lies_on_another(
    open_page: Callable[..., Any], page_file: Path, width: int
) -> None:
    page = open_page(page_file, width=width)
    # Halos are texts of the same place and content; everything else must keep apart.
    assert page.value(_OVERLAPS) == []


def test_the_cursor_reads_the_curves(open_page: Callable[..., Any], page_file: Path) -> None:
    page = open_page(page_file)
    box = page.value(
        "(() => { const c = document.querySelector('#figure-latency-cdf-chart'); c.scrollIntoView({behavior: 'instant'});"
        " const r = c.getBoundingClientRect(); return [r.left + r.width / 2, r.top + r.height / 2]; })()"
    )
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
    page.wait_for("!document.querySelector('#figure-latency-cdf-chart .tip').hidden", 5.0)
    text = page.value("document.querySelector('#figure-latency-cdf-chart .tip').textContent")
    assert text.startswith("latency (ms): ")
    assert all(name in text for name in ("edf", "fifo", "delay batching"))


def test_saved_data_is_safe_for_spreadsheets(open_page: Callable[..., Any], page_file: Path) -> None:
    page = open_page(page_file)
    page.value("URL.createObjectURL = (blob) => { window.saved = blob; return '#saved'; }")
    page.value("document.querySelector('#figure-hostile .save').click()")
    page.wait_for("window.saved !== undefined")
    text = page.value("window.saved.text()")
    assert "'=cmd()|A1" in text
    assert text.splitlines()[0].startswith("time (s),") or "time (s)" in text.splitlines()[0]
    assert len(text.splitlines()) == 5
    page.value("document.querySelectorAll('#figure-latency-cdf .save')[1].click()")
    page.wait_for("window.saved.type === 'image/svg+xml'")
    picture = page.value("window.saved.text()")
    assert picture.startswith("<svg") and "var(--" not in picture


def test_other_pages_load_too(open_page: Callable[..., Any], gallery: Any, tmp_path: Path) -> None:
    runs = [gallery.result(), gallery.result(9), gallery.result(11, policy="edf")]
    page = open_page(write_page(runs, tmp_path / "runs.html"))
    assert page.value("document.documentElement.dataset.failed") == "0"
    assert page.value("document.querySelectorAll('#figure-nodes-held-chart g.mark-line path').length") == 3
    assert page.complaints() == []
    entry, found = gallery.reproduction()
    page = open_page(write_html(reproduction_page(entry, found), tmp_path / "reproduction.html"))
    assert page.value("document.documentElement.dataset.drawn") == "2"
    assert page.complaints() == []


def test_without_scripts_the_data_is_there(chromium: Any, page_file: Path) -> None:
    page = chromium.open(page_file)
    page.call("Emulation.setScriptExecutionDisabled", value=True)
    page.call("Page.reload")
    page.wait_for("document.readyState === 'complete' && !document.querySelector('.chart svg')")
    shown = page.value("document.querySelector('noscript').getBoundingClientRect().height")
    assert shown > 0
    rows = page.value("document.querySelectorAll('#figure-cost details.data tbody tr').length")
    page.close()
    assert rows == 3


def test_the_demonstrations_of_all_rooms_are_drawn(
    open_page: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # the real domains, not the gallery
    import forerun
    from forerun.core.catalog import demos

    results = [forerun.simulate(forerun.load(entry.scenario)) for entry in demos()]
    page = open_page(write_page(results, tmp_path / "demo.html"))
    assert page.value("document.documentElement.dataset.failed") == "0"
    assert int(page.value("document.documentElement.dataset.drawn")) >= 3
    assert page.value(_OVERLAPS) == []
    assert page.complaints() == []


def _others(tmp_path: Path) -> list[Any]:
    """A study, a comparison, plans of every domain that plans, and measurements, all small."""
    import json

    import forerun
    from forerun.core.catalog import demo
    from forerun.core.domain import domain_names
    from forerun.core.planning import plan
    from forerun.core.report.stored import StoredComparison, open_stored
    from forerun.core.result.numbers import plain
    from forerun.core.result.objective import Objective
    from forerun.core.result.plan import document, write_document
    from forerun.core.scenario.spec import to_data
    from forerun.core.study.compare import compare_variants
    from forerun.core.study.compared import Variant
    from forerun.core.study.executors import Here
    from forerun.core.study.expand import load_study
    from forerun.core.study.run import run_study

    path = demo("serving").scenario
    small = ["trace.queries=400", "intervals={replications: 0}"]
    base = forerun.load(path, small)
    (tmp_path / "study.yaml").write_text(
        json.dumps(
            {
                "base": to_data(base),
                "axes": {"configuration.ResNet.replicas": [1, 2], "trace.process.rate_rps": [60, 90, 120]},
                "seeds": 3,
            }
        )
    )
    run_study(load_study(tmp_path / "study.yaml"), tmp_path / "study.sqlite", Here())
    variants = [Variant(f"replicas {n}", (("configuration.ResNet.replicas", n),)) for n in (1, 2, 3)]
    found = compare_variants(
        base, variants, Objective("latency_p99_ms", "lower", "P99 latency in ms"), seeds=5
    )
    items: list[Any] = [open_stored(tmp_path / "study.sqlite"), StoredComparison("replicas", found)]
    shrunk = {
        "serving": small,
        "cluster": ["trace.generate.jobs=40"],
        "spot": ["goal.deadline_s=20h", "choices.trials=100"],
    }
    for name in domain_names():
        if get_domain(name).planner is None:
            continue
        scenario = forerun.load(demo(name).scenario, shrunk.get(name, []))
        made = document(plan(scenario), scenario, "", {})
        items.append(open_stored(write_document(plain(made), tmp_path / f"{name}.json")))
    for name, data in MEASURED.items():
        (tmp_path / f"measured-{name}.json").write_text(json.dumps(data))
        items.append(open_stored(tmp_path / f"measured-{name}.json"))
    return items


MEASURED: dict[str, dict[str, Any]] = {
    "loading": {
        "format": "forerun.measurement/1", "domain": "loading", "forerun": "0", "answer": "loading is hidden by 4 threads",
        "block_samples": 4, "threads": 4, "profile": {"latency_s": 0.01, "notes": ["a note"], "intervals": {}},
        "host": {"cores": 2, "quiet": False},
        "checked": [
            {"block_samples": 2**k, "threads": 2, "measured_s": 1.0 + k, "predicted_s": 1.1 + k, "error": 0.1 / (1 + k),
             "probe": k == 0, "noisy": False} for k in range(5)
        ],
    },
    "energy": {
        "format": "forerun.measurement/1", "domain": "energy", "forerun": "0", "sensor": "none", "notes": ["no joules"],
        "campaign": {"device": "cpu"}, "torch": "2", "host": {"machine": "x"},
        "points": [
            {"batch_size": size, "power_limit_w": None, "epoch_s": 1.0 / size, "repeats": 5, "power_w": None,
             "epoch_s_interval": [0.9 / size, 1.1 / size]} for size in (16, 32, 64)
        ],
    },
}  # fmt: skip


def test_studies_comparisons_plans_and_measurements_are_drawn(
    open_page: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Study and comparison alone, and all in one page: drawn, silent, asking for nothing, readable in both lights."""
    monkeypatch.undo()  # the real domains, not the gallery
    items = _others(tmp_path)
    assert len(items) >= 8
    for number, item in enumerate([items[:1], items[1:2], items]):
        path = write_page(item, tmp_path / f"{number}.html")
        page = open_page(path)
        assert page.value("document.documentElement.dataset.failed") == "0"
        figures = page.value("document.querySelectorAll('figure').length")
        assert (
            figures >= len(item) and page.value("document.querySelectorAll('.chart svg').length") == figures
        )
        assert page.complaints() == [] and page.requests() == [path.resolve().as_uri()]
        assert page.value(_OVERLAPS) == []
        light = page.value("getComputedStyle(document.body).backgroundColor")
        page.media("dark")
        assert page.value("getComputedStyle(document.body).backgroundColor") != light
    page = open_page(path, width=360)
    assert page.value("document.documentElement.scrollWidth") <= 360 and page.value(_OVERLAPS) == []
    told = page.value("document.querySelector('header').textContent")
    assert "1 study, 1 comparison, " in told and "2 measurements" in told
