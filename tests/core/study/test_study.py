"""Studies: expanded in order, resumed after any death, the same bytes however they are run."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from forerun.core.errors import ScenarioError, StoreError, UsageError
from forerun.core.study.cell import Done, Failed, run_cell
from forerun.core.study.executors import Here
from forerun.core.study.executors.processes import Processes
from forerun.core.study.expand import StudyPlan, load_study
from forerun.core.study.run import run_study
from forerun.core.study.store import Store, salvage
from forerun.core.study.summary import cells_table, points

from ...conftest import cases

STUDY = """
base: {domain: toy, noise: 1.0}
axes:
  x: {start: 0, stop: 2, step: 1}
  policy: [plain, half]
seeds: 3
"""


def plan_of(tmp_path: Path, text: str = STUDY, name: str = "study.yaml") -> StudyPlan:
    (tmp_path / name).write_text(text)
    return load_study(tmp_path / name)


def table_bytes(plan: StudyPlan, store: Path, folder: Path) -> bytes:
    with Store(store, plan) as opened:
        table = cells_table(plan, list(opened.outcomes()))
    table.write_csv(folder / "cells.csv")
    table.write_parquet(folder / "cells.parquet")
    return (folder / "cells.csv").read_bytes() + (folder / "cells.parquet").read_bytes()


def test_cells_come_in_order(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    cells = list(plan.cells())
    assert len(plan) == len(cells) == 18
    assert [(dict(c.overrides)["x"], dict(c.overrides)["policy"], c.seed) for c in cells[:4]] == [
        (0, "plain", 0), (0, "plain", 1), (0, "plain", 2), (0, "half", 0),
    ]  # fmt: skip
    assert plan.scenario(cells[3]).policy == "half"


def test_the_same_bytes_at_any_worker_count(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    found = set()
    for name, executor in (("here", Here()), ("one", Processes(1)), ("two", Processes(2))):
        run_study(plan, tmp_path / f"{name}.sqlite", executor)
        found.add(table_bytes(plan, tmp_path / f"{name}.sqlite", tmp_path))
    assert len(found) == 1


def test_a_study_tells_each_combination_with_its_interval(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    run_study(plan, tmp_path / "s.sqlite", Here())
    with Store(tmp_path / "s.sqlite", plan) as store:
        found = points(plan, list(store.outcomes()))
    assert [point.values for point in found][:3] == [(0, "plain"), (0, "half"), (1, "plain")]
    assert all(
        point.seeds == 3 and point.intervals["total_s"].low < point.means["total_s"] for point in found
    )


MISFORTUNES = {
    "error": "toy: x is unlucky", "bug": "ZeroDivisionError: a bug of the domain", "memory": "ran out of memory",
    "die": "ended by SIGKILL; the machine may have run out of memory", "hang": "longer than the limit of 0.5 s",
}  # fmt: skip


@pytest.mark.parametrize("misfortune", MISFORTUNES)
def test_one_bad_cell_never_sinks_the_study(tmp_path: Path, misfortune: str) -> None:
    text = f"base: {{domain: toy, unlucky_x: 7, misfortune: {misfortune}}}\naxes: {{x: {{start: 1, stop: 40, step: 1}}}}\n"
    plan = plan_of(tmp_path, text)
    state = run_study(plan, tmp_path / "s.sqlite", Processes(2, limit_s=0.5))
    assert (state.done, state.failed) == (39, 1)
    with Store(tmp_path / "s.sqlite", plan) as store:
        bad = [outcome for outcome in store.outcomes() if isinstance(outcome, Failed)]
    assert [outcome.number for outcome in bad] == [6] and MISFORTUNES[misfortune] in bad[0].reason


def test_failed_cells_are_done_again_on_request_only(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "base: {domain: toy, unlucky_x: 2}\naxes: {x: [1, 2, 3]}\n")
    for retry, runs in ((False, 3), (False, 0), (True, 1)):
        seen: list[int] = []

        class Counting(Here):
            def run(self, plan, cells):  # type: ignore[no-untyped-def]
                return super().run(plan, (seen.append(cell.number) or cell for cell in cells))  # noqa: B023

        state = run_study(plan, tmp_path / "s.sqlite", Counting(), retry=retry)
        assert len(seen) == runs and (state.done, state.failed) == (2, 1)


KILLS = cases(25, 100)


def test_killed_at_any_instant_it_goes_on_and_ends_in_the_same_tables(tmp_path: Path) -> None:
    """A hundred deaths by SIGKILL at random instants: no finished cell is lost or done twice."""
    text = "base: {domain: toy, noise: 1.0, sleep_s: 0.004}\naxes: {x: {start: 1, stop: 300, step: 1}}\nseeds: 3\n"
    plan = plan_of(tmp_path, text)
    code = (
        "import sys; sys.path.insert(0, sys.argv[3])\n"
        "from pathlib import Path\n"
        "from forerun.core.study import run\n"
        "from forerun.core.study.expand import load_study\n"
        "from forerun.core.study.executors import Here\n"
        "run.KEEP_S = 0.002\n"
        "print('go', flush=True)\n"
        "run.run_study(load_study(sys.argv[1]), Path(sys.argv[2]), Here())\n"
    )
    toy = str(Path(__file__).parent / "toy")
    command = [sys.executable, "-c", code, str(tmp_path / "study.yaml"), str(tmp_path / "killed.sqlite"), toy]
    luck = random.Random(4)
    before: dict[int, str] = {}
    # One process is forked over and over: starting Python a hundred times would measure nothing else.
    for _ in range(KILLS):
        _fork_run_kill(plan, tmp_path / "killed.sqlite", luck.uniform(0.0, 0.05))
        before = _kept_and_none_lost(tmp_path / "killed.sqlite", before)
    assert 0 < len(before) < len(plan), "the deaths came while the study was running"
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    run_study(plan, tmp_path / "whole.sqlite", Here())
    killed, whole = (table_bytes(plan, tmp_path / f"{name}.sqlite", tmp_path) for name in ("killed", "whole"))
    assert killed == whole


def _fork_run_kill(plan: StudyPlan, store: Path, after_s: float) -> None:
    from forerun.core.study import run as run_module

    pid = os.fork()
    if pid == 0:
        run_module.KEEP_S = 0.002
        try:
            run_study(plan, store, Here())
        finally:
            os._exit(0)
    time.sleep(after_s)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _kept_and_none_lost(store: Path, before: dict[int, str]) -> dict[int, str]:
    if not store.exists():
        return before
    connection = sqlite3.connect(store)
    try:
        rows = connection.execute("SELECT number, summary FROM cells").fetchall()
    except sqlite3.OperationalError:  # killed before the tables were made
        rows = []
    connection.close()
    now = dict(rows)
    assert len(now) == len(rows) and before.items() <= now.items()
    return now


def test_a_second_writer_is_refused_and_told_who_writes(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    path = tmp_path / "s.sqlite"
    with (
        Store(path, plan, writing=True),
        pytest.raises(StoreError, match=f"is being written by process {os.getpid()} on"),
        Store(path, plan, writing=True),
    ):
        raise AssertionError("two writers")
    with Store(path, plan, writing=True):
        pass  # free again


def test_a_store_of_another_study_is_refused(tmp_path: Path) -> None:
    run_study(plan_of(tmp_path), tmp_path / "s.sqlite", Here())
    other = plan_of(tmp_path, STUDY.replace("seeds: 3", "seeds: 4"), "other.yaml")
    with pytest.raises(StoreError, match="contains another study"):
        run_study(other, tmp_path / "s.sqlite", Here())


def test_a_store_of_another_version_is_refused(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    for key, message in (("version", "was written by forerun 0.0.0"), ("format", "has store format 0.0.0")):
        path = tmp_path / f"{key}.sqlite"
        run_study(plan, path, Here())
        connection = sqlite3.connect(path)
        connection.execute("UPDATE about SET value = '0.0.0' WHERE key = ?", (key,))
        connection.commit()
        connection.close()
        with pytest.raises(StoreError, match=message):
            run_study(plan, path, Here())


def test_a_damaged_store_is_said_plainly_and_what_is_readable_is_kept(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "base: {domain: toy}\naxes: {x: {start: 1, stop: 400, step: 1}}\n")
    run_study(plan, tmp_path / "s.sqlite", Here())
    content = (tmp_path / "s.sqlite").read_bytes()
    torn = tmp_path / "torn.sqlite"
    torn.write_bytes(content[: len(content) // 2])
    with pytest.raises(StoreError, match="damaged"), Store(torn, plan) as store:
        list(store.outcomes())
    kept = salvage(torn, tmp_path / "saved.sqlite")
    assert 0 < kept < 400
    state = run_study(plan, tmp_path / "saved.sqlite", Here())
    assert state.done == 400
    assert table_bytes(plan, tmp_path / "saved.sqlite", tmp_path) == table_bytes(
        plan, tmp_path / "s.sqlite", tmp_path
    )
    nonsense = tmp_path / "nonsense.sqlite"
    nonsense.write_bytes(b"not a database at all" * 100)
    with pytest.raises(StoreError, match="damaged or no study store"):
        Store(nonsense, plan)
    with pytest.raises(StoreError, match="nothing can be read"):
        salvage(nonsense, tmp_path / "x.sqlite")


def test_a_log_torn_at_any_byte_loses_what_was_not_written_and_no_more(tmp_path: Path) -> None:
    """The write-ahead log is cut at 30 random bytes, as when the power fails: whole commits stay, and it goes on."""
    plan = plan_of(tmp_path)
    outcomes = [run_cell(plan, cell) for cell in plan.cells()]
    store, log = tmp_path / "s.sqlite", tmp_path / "s.sqlite-wal"
    with Store(store, plan, writing=True) as opened:
        written: list[tuple[int, int]] = []  # bytes of the log, and cells kept, after each commit
        for start in range(0, 18, 3):
            opened.add(outcomes[start : start + 3])
            written.append((log.stat().st_size, start + 3))
        content, tail = store.read_bytes(), log.read_bytes()
    run_study(plan, tmp_path / "whole.sqlite", Here())
    whole = table_bytes(plan, tmp_path / "whole.sqlite", tmp_path)
    luck = random.Random(7)
    for number in range(30):
        cut = luck.randrange(written[0][0], len(tail))
        torn = tmp_path / f"torn-{number}.sqlite"
        torn.write_bytes(content)
        torn.with_name(torn.name + "-wal").write_bytes(tail[:cut] + luck.randbytes(number % 3 * 50))
        with Store(torn, plan) as opened:
            kept = set(opened.numbers("done"))
        assert kept == set(range(max(cells for size, cells in written if size <= cut)))
        assert run_study(plan, torn, Here()).done == 18
        assert table_bytes(plan, torn, tmp_path) == whole


def test_a_full_disk_loses_nothing_that_was_kept(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "base: {domain: toy}\naxes: {x: {start: 1, stop: 800, step: 1}}\n")
    path = tmp_path / "s.sqlite"
    outcomes = [Done(number, {"total_s": float(number), "pad": "x" * 200}) for number in range(800)]
    with Store(path, plan, writing=True) as store:
        store._connection.execute("PRAGMA max_page_count = 40")
        kept = 0
        with pytest.raises(StoreError, match="full; the cells stored so far are safe"):
            for start in range(0, 800, 50):
                store.add(outcomes[start : start + 50])
                kept += 50
        assert set(store.numbers("done")) == set(range(kept)) and 0 < kept < 800
        store._connection.execute("PRAGMA max_page_count = 100000")
    assert run_study(plan, path, Here()).done == 800


MALFORMED = {
    "base: {domain: toy}\naxes: {z: [1]}": r"axes.z: unknown key 'z'",
    "base: {domain: toy}\naxes: {policyy: [a]}": r"did you mean 'policy'",
    "base: {domain: toy}\naxes: {x: []}": "has no values",
    "base: {domain: toy}\naxes: {x: [1, 1]}": "a value twice",
    "base: {domain: toy}\nseeds: []": "at least one",
    "base: {domain: toy}\naxes: {seed: [1, 2]}": "axes.seed: is no axis: write `seeds:",
    "base: {domain: toy}\nseeds: [1, 1]": "different whole numbers",
    "base: {domain: toy}\nseeds: [-1, 1]": "from 0 on",
    "base: {domain: toy}\nseeds: 0": "0 is below 1",
    "base: {domain: toy}\naxes: {x: {start: 1, stop: 1000000, step: 1}}\nseeds: 1000": (
        "1,000,000 x 1,000 seeds are 1,000,000,000 cells; at most 1,000,000"
    ),
    "base: {domain: toy}\naxes: {x: {start: 1, stop: 1e9, step: 1}}": "1,000,000,000 x 1 seeds are 1,000,000,000 cells",
    "base: {domain: toy}\naxes: {x: {start: 0, stop: 1e300, step: 1e-300}}": "at most 1,000,000",
    "base: {domain: toy}\naxes: {x: {start: 0, stop: 1, count: 1000000000}, y: []}": "1,000,000,000 x 0 x 1 seeds",
    "base: {domain: toy}\nseeds: 1000000000": "1,000,000,000 seeds are 1,000,000,000 cells",
    "base: {domain: toy}\naxes: {x: {start: 1, stop: 5}}": "exactly one of 'step' and 'count'",
    "base: {domain: toy}\naxes: {x: {start: 5, stop: 1, step: 1}}": "before start",
    "base: {domain: toy}\naxes: {x: {start: 5, stop: 9, step: 0}}": "0 is not above 0",
    "base: {domain: toy}\naxes: {x: {start: 5min, stop: 9min, step: 1min}}": "'5min' is no value of the axis",
    "base: {domain: toy}\naxes: {y: [-1]}": "-1 is negative",
    "base: {domain: nowhere}": "no domain named 'nowhere'",
    "base: missing.yaml": "no such file",
    "base: {domain: toy, xx: 1}": "unknown key 'xx'",
    "axes: {x: [1]}": "'base' is missing",
    "base: {domain: toy}\nexecutor: ray": "unknown key 'executor'",
}


@pytest.mark.parametrize("text", MALFORMED, ids=lambda text: text[-40:])
def test_malformed_studies(tmp_path: Path, text: str) -> None:
    with pytest.raises(ScenarioError, match=MALFORMED[text]):
        plan_of(tmp_path, text)


def test_a_range_of_values(tmp_path: Path) -> None:
    plan = plan_of(
        tmp_path,
        "base: {domain: toy}\naxes: {x: {start: 0, stop: 0.3, step: 0.1}, y: {start: 1, stop: 2, count: 3}}",
    )
    assert [values for _, values in plan.axes] == [(0, 0.1, 0.2, 0.30000000000000004), (1, 1.5, 2)]


def test_a_script_without_a_guard_is_told_so(tmp_path: Path) -> None:
    """Processes import the script that starts them: unguarded, each would start the study anew, for ever."""
    plan_of(tmp_path)
    script = tmp_path / "script.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent / 'toy')!r})\n"
        "from pathlib import Path\n"
        "from forerun.core.study.executors.processes import Processes\n"
        "from forerun.core.study.expand import load_study\n"
        "from forerun.core.study.run import run_study\n"
        f"run_study(load_study({str(tmp_path / 'study.yaml')!r}), Path({str(tmp_path / 's.sqlite')!r}), Processes(1))\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1 and "must do so under `if __name__ == '__main__':`" in done.stderr


def test_an_unreachable_ray_is_said_plainly(tmp_path: Path) -> None:
    from forerun.core.study.executors.ray import OnRay

    with pytest.raises(UsageError, match="name the Ray cluster's address"):
        OnRay("")
    _needs_ray()
    with pytest.raises(StoreError, match="no Ray cluster can be reached"):
        list(OnRay("127.0.0.1:1").run(plan_of(tmp_path), []))


def test_a_ray_that_breaks_while_it_is_imported_is_said_plainly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from forerun.core.study.executors.ray import OnRay

    (tmp_path / "ray.py").write_text("raise KeyError('libamd_smi.so')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    with pytest.raises(UsageError, match=r"Ray cannot be imported here: KeyError: 'libamd_smi.so'"):
        list(OnRay("local").run(plan_of(tmp_path), []))


def _needs_ray() -> None:
    try:
        import ray  # noqa: F401
    except ImportError:
        pytest.skip("Ray is not installed (extra [ray])")
    except Exception as error:  # another package of this environment breaks it
        pytest.skip(f"Ray cannot be imported here: {type(error).__name__}: {error}")


def test_bad_cells_and_bad_stores_at_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verb as a user has it, one worker: each misfortune is told, none sinks the study, none shows a traceback."""
    from forerun.core.cli.main import run as command_line

    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text(
        "base: {domain: toy, unlucky_x: 2}\naxes: {misfortune: [error, bug, memory, die, hang], x: [1, 2]}\n"
    )
    assert command_line(["study", "s.yaml", "--limit", "1"]) == 0
    shown = capsys.readouterr().out
    for told in (
        "toy: x is unlucky",
        "ZeroDivisionError",
        "ran out of memory",
        "ended by SIGKILL",
        "limit of 1 s",
    ):
        assert told in shown, told
    with Store(Path("s.sqlite")) as store:
        assert (len(set(store.numbers("done"))), len(set(store.numbers("failed")))) == (5, 5)
    Path("other.yaml").write_text("base: {domain: toy}\naxes: {x: [1, 2]}\n")
    plan = load_study("other.yaml")
    with Store(Path("held.sqlite"), plan, writing=True):
        assert command_line(["study", "other.yaml", "--store", "held.sqlite"]) == 2
        assert f"is being written by process {os.getpid()}" in capsys.readouterr().err
    assert command_line(["study", "other.yaml", "--store", "s.sqlite"]) == 2
    assert "contains another study" in capsys.readouterr().err
    Path("bad.sqlite").write_bytes(b"nonsense" * 2000)
    for arguments in (["study", "other.yaml", "--store", "bad.sqlite"], ["report", "bad.sqlite"]):
        assert command_line(arguments) == 2
        assert "damaged or no study store" in capsys.readouterr().err
    assert Path("bad.sqlite").read_bytes() == b"nonsense" * 2000


def test_quantities_are_numbers_of_the_axis(tmp_path: Path) -> None:
    """`5min` on an axis in seconds is 300: with or without the suffix, in lists and ranges; names stay names."""
    base = (
        "base:\n  domain: serving\n  trace: {process: {name: poisson, rate_rps: 50rps}, queries: 10}\n"
        "  stages: [{name: a, parents: [source]}]\n  configuration: {a: {hardware: V100, max_batch: 2}}\n"
        "  service: {tables_ms: {a: [10, 12]}}\n  slo_ms: 15\n  prices_usd_per_h: {V100: 1}\n"
    )

    def axes(text: str) -> tuple[tuple[str, tuple[object, ...]], ...]:
        return plan_of(tmp_path, base + f"axes: {text}\n").axes

    assert axes("{slo: [20ms, 0.1s]}") == (("slo_ms", (20.0, 100.0)),)
    assert axes("{slo_ms: [20, 1s]}") == (("slo_ms", (20, 1000.0)),)
    assert axes("{trace.process.rate: [60rps, 80]}") == (("trace.process.rate_rps", (60.0, 80)),)
    assert axes("{slo: {start: 10ms, stop: 0.03s, step: 10ms}}") == (("slo_ms", (10, 20, 30)),)
    assert axes("{configuration.a.batching: [greedy, {name: timeout, delay: 5ms}]}")[0][1][0] == "greedy"
    for text, message in (
        ("{slo: {start: 30ms, stop: 10ms, step: 5ms}}", "before start"),
        ("{slo: {start: 10ms, stop: 1s, step: 5GB}}", "a time is wanted"),
        ("{slo: [10ms, 5GB]}", "a time is wanted"),
        ("{slo: {start: 0ms, stop: -1ms, count: 2}}", "'0ms' is no value of the axis"),
        ("{slo: {start: 1ms, stop: 100h, step: 1us}}", "359,999,999,001 x 1 seeds"),
        ("{slo: [10GB]}", "a time is wanted"),
        ("{configuration.b.max_batch: [1]}", "configuration"),
    ):
        with pytest.raises(ScenarioError, match=message):
            axes(text)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_request_to_end_says_how_far_the_study_is(tmp_path: Path, workers: int) -> None:
    """SIGTERM to the command alone, as a batch system sends it: its words, its exit code, no process left, no cell lost."""
    (tmp_path / "s.yaml").write_text(
        "base: {domain: toy, sleep_s: 0.02}\naxes: {x: {start: 1, stop: 5000, step: 1}}\n"
    )
    command = [sys.executable, "-m", "forerun", "study", "s.yaml", "-j", str(workers), "-q"]
    toy = str(Path(__file__).parent / "toy")
    paths = os.pathsep.join([toy, *filter(None, [os.environ.get("PYTHONPATH", "")])])
    environment = {**os.environ, "PYTHONPATH": paths}
    running = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    store = tmp_path / "s.sqlite"
    while running.poll() is None and not _kept(store):
        time.sleep(0.05)
    running.terminate()
    _, said = running.communicate(timeout=120)
    assert running.returncode == 143
    assert "forerun: ended by SIGTERM; " in said and "of 5,000 cells are in s.sqlite" in said
    assert "the same command goes on from there" in said and "Traceback" not in said
    kept = int(said.split("SIGTERM; ")[1].split(" of ")[0].replace(",", ""))
    with Store(store) as opened:
        assert len(set(opened.numbers("done"))) == kept > 0
    with pytest.raises(ProcessLookupError):
        for _ in range(200):  # workers need a moment to see that nobody is left
            os.killpg(running.pid, 0)
            time.sleep(0.05)


def _kept(store: Path) -> int:
    try:
        with Store(store) as opened:
            return len(set(opened.numbers("done")))
    except StoreError:
        return 0
