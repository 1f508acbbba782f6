"""Pages: self-contained, inert to hostile names, the same bytes for the same run, written whole."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forerun
from forerun.core.cli.main import run as command_line
from forerun.core.errors import StoreError, UsageError
from forerun.core.report import html_page, write_page
from forerun.core.report.contents import as_yaml, flat
from forerun.core.report.markup import Html, script_json, tag
from forerun.core.result.figures import Axis, Figure
from forerun.core.result.run import load_result
from forerun.replication.page import reproduction_page

pytestmark = pytest.mark.usefixtures("gallery_domain")


class Reader(HTMLParser):
    """The elements of a page with their attributes and text, as a browser's parser sees them."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_data(self, data: str) -> None:
        if self.elements and self.elements[-1][0] == "script" and self.cdata_elem == "script":
            about, text = self.scripts[-1]
            self.scripts[-1] = (about, text + data)
        else:
            self.texts.append(data)


@pytest.fixture
def page(gallery: Any) -> Reader:
    return Reader(html_page([gallery.result()]))


def test_nothing_is_loaded(page: Reader) -> None:
    for name, attributes in page.elements:
        assert name not in {"link", "iframe", "object", "embed", "base", "img", "form", "audio", "video"}
        for key in ("src", "srcset", "data", "action", "background", "poster", "ping"):
            assert key not in attributes, (name, attributes)
        href = attributes.get("href")
        assert href is None or href.startswith("#"), href
        assert not [key for key in attributes if key.startswith("on")]
        assert "url(" not in (attributes.get("style") or "")
    styles = "".join(text for text in page.texts if ":root" in text)
    assert "@import" not in styles and "url(" not in styles and "http" not in styles


def test_only_the_named_scripts_may_run(page: Reader) -> None:
    policy = next(
        a["content"] for name, a in page.elements if a.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    sources = re.search(r"script-src ([^;]*)", policy)
    assert sources is not None
    executed = [text for about, text in page.scripts if about.get("type") is None]
    digests = {
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in executed
    }
    assert set(sources.group(1).split()) == digests
    assert len(digests) == 2
    assert all("\r" not in text and "\0" not in text for text in executed)


def test_hostile_names_are_text(page: Reader, gallery: Any) -> None:
    data = [text for about, text in page.scripts if about.get("type") == "application/json"]
    assert len(data) == len(gallery.every_kind()) - 1  # the empty figure has none
    assert all("<" not in text and ">" not in text for text in data)
    kept = [value for text in data for value in json.loads(text)["columns"].get("y", [])]
    assert gallery.HOSTILE in kept and gallery.BREAKOUT in kept
    assert not [name for name, _ in page.elements if name == "img"]
    shown = " ".join(page.texts)
    assert shown.count(gallery.HOSTILE) >= 6
    assert len([1 for about, _ in page.scripts if about.get("type") is None]) == 2


def test_the_page_says_everything_about_the_run(page: Reader, gallery: Any) -> None:
    result = gallery.result()
    shown = " ".join(" ".join(page.texts).split())
    for words in (
        result.why, result.id, "319.2", "305 … 322", "95%, batch means", "USD/h", "8.533", "Query time", "71.3%",
        "waiting for a replica", *result.notes, "replicas: 30", "'svm: fast'", "profile_ms: [1.0, 2.5, 4.0]",
        "note: 'yes'", "jobs.parquet", "name of the job", "wall s",
        "forerun simulate SCENARIO --set stages[0].replicas=3",
    ):  # fmt: skip
        assert words in shown, words
    for figure in gallery.every_kind():
        assert figure.title in shown
        assert figure.caption in shown


def test_figures_have_text_alternatives(page: Reader, gallery: Any) -> None:
    charts = [a for name, a in page.elements if name == "div" and a.get("class") == "chart"]
    assert len(charts) == len(gallery.every_kind()) - 1
    assert all(a["role"] == "img" and a["aria-label"] for a in charts)
    tables = [name for name, a in page.elements if name == "details" and a.get("class") == "data"]
    assert len(tables) == len(charts)
    ids = [a["id"] for _, a in page.elements if a.get("id")]
    assert len(ids) == len(set(ids))
    targets = {a["href"] for name, a in page.elements if name == "a"}
    assert {target[1:] for target in targets if target} <= set(ids)


def test_ledger_bars_add_up(gallery: Any) -> None:
    text = html_page([gallery.result()])
    bar = re.search(r'<div class="bar".*?</div>', text)
    assert bar is not None
    widths = [float(width) for width in re.findall(r"width:([0-9.]+)%", bar.group())]
    assert sum(widths) == pytest.approx(100.0, abs=1e-3)
    assert len(widths) == 3


def test_the_same_run_gives_the_same_bytes(gallery: Any, tmp_path: Path) -> None:
    folder = gallery.result().save(tmp_path / "run")
    first = write_page([load_result(folder)], tmp_path / "one.html").read_bytes()
    assert first == write_page([load_result(folder)], tmp_path / "two.html").read_bytes()
    assert first == html_page([load_result(folder)]).encode()


def test_a_run_and_its_directory_give_the_same_page_body(gallery: Any, tmp_path: Path) -> None:
    folder = gallery.result().save(tmp_path / "run")
    saved, fresh = Reader(html_page([load_result(folder)])), Reader(html_page([gallery.result()]))
    figures = [
        [text for about, text in page.scripts if about.get("class") == "figure-data"]
        for page in (saved, fresh)
    ]
    assert figures[0] == figures[1]
    assert " ".join(saved.texts).count("queue p99 (ms)") == 1


def test_size_with_large_data(gallery: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    size = 1_000_000
    x = np.sort(np.random.Generator(np.random.Philox(2)).random(size)) * 5_000
    y = np.random.Generator(np.random.Philox(3)).gamma(2.0, 40.0, size)
    figures = tuple(
        Figure(f"f{k}", "F", kind, Axis("x", "time", "s"), Axis("y", "latency", "ms"), {"x": x, "y": y})
        for k, kind in enumerate(("line", "step", "points"))
    )
    monkeypatch.setattr(gallery.FIGURES, "figures", lambda run: figures)
    text = html_page([gallery.result()])
    assert len(text.encode()) < 3_000_000
    assert text.count("of 1,000,000 points drawn") == len(figures)


def test_several_runs_side_by_side(gallery: Any) -> None:
    runs = [gallery.result(), gallery.result(9, slo_ms=200.0)]
    page = Reader(html_page(runs))
    shown = " ".join(" ".join(page.texts).split())
    assert "2 runs side by side" in shown
    assert re.search(r"slo_ms\s+350\s+200", shown)
    assert re.search(r"seed\s+7\s+9", shown)
    assert "replicas" not in shown.split("Where the scenarios differ")[2].split("Where it went")[0]
    assert "+0.6%" in shown
    data = [json.loads(text) for about, text in page.scripts if about.get("type") == "application/json"]
    both = next(one for one in data if one["name"] == "figure-nodes-held")
    assert set(both["columns"]["series"]) == {"gallery (1)", "gallery (2)"}
    # A figure with series of its own stays apart: one for each run.
    assert [one["name"] for one in data if "latency-cdf" in one["name"]] == [
        "run-1-latency-cdf",
        "run-2-latency-cdf",
    ]
    with pytest.raises(UsageError, match="13 runs"):
        html_page([gallery.result()] * 13)


def test_a_reproduction_page(gallery: Any) -> None:
    entry, found = gallery.reproduction()
    shown = " ".join(" ".join(Reader(reproduction_page(entry, found)).texts).split())
    assert "1 of 2 judged numbers within tolerance; 1 not judged." in shown
    assert re.search(r"p99 latency \(ms\) 310 311\.5 305\.2 2 yes two figures", shown)
    assert re.search(r"cost \(USD/h\) 8\.5 9\.1 9 0\.1 no differs", shown)
    assert re.search(r"queries – 50,001 50,001 – not judged", shown)
    assert shown.index("Numbers") < shown.index("Figures")
    many = reproduction_page(entry, replace(found, rows=found.rows * 5))
    assert many.index('id="figures"') < many.index('id="numbers"'), "a long table follows the figures"


def test_only_our_own_pages_are_replaced(gallery: Any, tmp_path: Path) -> None:
    other = tmp_path / "thesis.html"
    other.write_text("<!doctype html><p>years of work</p>")
    with pytest.raises(StoreError, match="not a forerun page"):
        write_page([gallery.result()], other)
    assert other.read_text().endswith("years of work</p>")
    with pytest.raises(StoreError, match="is a directory"):
        write_page([gallery.result()], tmp_path)
    page = tmp_path / "deep" / "page.html"
    write_page([gallery.result()], page)
    write_page([gallery.result()], page)
    assert [path.name for path in page.parent.iterdir()] == ["page.html"]
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="cannot be written"):
        write_page([gallery.result()], tmp_path / "file" / "page.html")


def test_the_command_line(
    gallery: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    folder = gallery.result().save(tmp_path / "run")
    assert command_line(["report", str(folder), "-o", str(tmp_path / "p.html"), "-q"]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / "p.html")]
    monkeypatch.setattr(gallery.FIGURES, "figures", lambda run: (gallery.bar(), gallery.bar()))
    assert command_line(["report", str(folder), "--svg", str(tmp_path / "pictures"), "-q"]) == 0
    names = sorted(path.name for path in (tmp_path / "pictures").iterdir())
    assert names == ["cost-2.svg", "cost.svg", "ledger-gpu-time.svg", "ledger-query-time.svg"]
    assert not (tmp_path / "report.html").exists()
    assert command_line(["report", str(tmp_path / "nowhere"), "-q"]) == 2
    assert "no such run directory" in capsys.readouterr().err
    assert command_line(["report"]) == 2


def test_a_run_without_what_its_figures_need(gallery: Any, tmp_path: Path, monkeypatch: Any) -> None:
    folder = gallery.result().save(tmp_path / "run")
    monkeypatch.setattr(gallery.FIGURES, "figures", lambda run: run.tables["queries"])
    with pytest.raises(StoreError, match="queries"):
        html_page([load_result(folder)])


def test_text_is_escaped_unless_it_is_markup() -> None:
    assert (
        tag("p", "<b>", Html("<i>x</i>"), title='"><script>')
        == '<p title="&quot;&gt;&lt;script&gt;">&lt;b&gt;<i>x</i></p>'
    )
    text = script_json({"a": "</script><!--\u2028&"})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"a": "</script><!--\u2028&"}


def test_scenario_text_reads_back(gallery: Any) -> None:
    import yaml

    from forerun.core.scenario.spec import to_data

    data = to_data(gallery.result(note="no: yes", policy="- [x").scenario)
    assert yaml.safe_load(as_yaml(data)) == data
    assert yaml.safe_load(as_yaml({"a": [{"b": [[1, 2], [3]]}, {}], "c": [], "d": None, "e": "1.5", "f": "#"})) == {
        "a": [{"b": [[1, 2], [3]]}, {}], "c": [], "d": None, "e": "1.5", "f": "#",
    }  # fmt: skip
    long = as_yaml({"rows": [{"a": k} for k in range(10_000)]})
    assert len(long.splitlines()) == 1_501 and "scenario.json" in long
    assert flat({"a": {"b": [1, 2], "c": [{"d": 3}]}}) == {"a.b": "1, 2", "a.c[0].d": 3}


def test_importing_the_report_draws_in_nothing_heavy() -> None:
    import subprocess
    import sys

    heavy = ("altair", "vl_convert", "polars", "numba")
    code = f"import sys, forerun.core.report, forerun.core.cli.report; print([m for m in {heavy} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
    assert forerun.__version__


def test_names_and_units_as_people_read_them() -> None:
    from forerun.core.result.numbers import capital
    from forerun.core.units import split_name

    assert split_name("latency_p99_ms") == ("latency p99", "ms")
    assert split_name("cost_usd_per_h") == ("cost", "USD/h")
    assert split_name("busy_share") == ("busy share", "")
    assert split_name("slo_met") == ("SLO met", "")
    assert split_name("energy_saved_last5_percent") == ("energy saved last five", "%")
    assert split_name("saved_percent_two_level") == ("saved two level", "%")
    assert capital("queue wait") == "Queue wait"


def test_runs_of_different_rooms_follow_one_another(gallery: Any) -> None:
    from dataclasses import replace

    one = gallery.result()
    other = replace(one, scenario=gallery.OtherScenario())
    page = Reader(html_page([one, other]))
    shown = " ".join(" ".join(page.texts).split())
    assert "Gallery, attic" in shown
    assert "2 runs of 2 domains" in shown
    assert "against" not in shown.split("Where it went")[0]
    assert shown.count("Query time") == 2
    ids = [a["id"] for _, a in page.elements if a.get("id")]
    assert len(ids) == len(set(ids))


def test_runs_of_every_room_that_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the real domains, not the gallery
    from forerun.core.catalog import demos
    from forerun.core.report.contents import figures_of

    for entry in demos():
        folder = forerun.simulate(forerun.load(entry.scenario)).save(tmp_path / entry.domain)
        saved = load_result(folder)
        drawn = figures_of(saved)
        shown = " ".join(Reader(html_page([saved])).texts)
        assert saved.why in shown
        for figure in drawn:
            assert figure.caption, figure.id
            assert figure.caption in shown
