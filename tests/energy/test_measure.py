"""Real measurement: counters that wrap, limits that are restored, reasons for missing joules, files for `simulate`."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forerun
from forerun.core.cli.main import run as command_line
from forerun.core.errors import TraceError, UsageError
from forerun.energy.measure import campaign as campaigns
from forerun.energy.measure import meters
from forerun.energy.measure.campaign import Campaign, compared, measure
from forerun.energy.measure.limits import Gpu, restored, set_limit, settable
from forerun.energy.measure.meters import CounterReset, NoMeter, NvmlMeter, RaplMeter, SampledNvmlMeter
from forerun.energy.measure.training import Epochs, Trainer

SMALL = Campaign(
    device="cpu", batch_sizes=(16, 64), limits_w=(), targets=(0.8, 0.9), seeds=2, repeats=3, max_epochs=9
)


def rapl_zone(root: Path, counted: int, wraps_at: int = 999_999) -> Path:
    zone = root / "intel-rapl:0"
    zone.mkdir(parents=True, exist_ok=True)
    (zone / "energy_uj").write_text(f"{counted}\n")
    (zone / "max_energy_range_uj").write_text(f"{wraps_at}\n")
    return zone


def test_rapl_counts_across_its_wrap(tmp_path: Path) -> None:
    zone = rapl_zone(tmp_path, 900_000)
    meter = RaplMeter((zone,))
    assert meter.read_j() == 0.0
    rapl_zone(tmp_path, 950_000)
    assert meter.read_j() == pytest.approx(0.05)
    rapl_zone(tmp_path, 20_000)  # 50,000 to the wrap, one to zero is the wrap itself, 20,000 beyond
    assert meter.read_j() == pytest.approx(0.05 + 0.07)
    assert "memory not included" in meter.sensor


def test_without_a_counter_it_says_why_and_what_would_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meters, "RAPL_ROOT", tmp_path / "nowhere")
    found = meters.find_meter("cpu")
    assert isinstance(found, NoMeter)
    assert "no intel-rapl zone" in found.reasons[0] and "would help" in found.reasons[0]
    monkeypatch.setattr(meters, "RAPL_ROOT", tmp_path)
    zone = rapl_zone(tmp_path, 5)
    (zone / "energy_uj").unlink()
    unreadable = meters.find_meter("cpu")
    assert isinstance(unreadable, NoMeter) and "cannot be read" in unreadable.reasons[0]
    rapl_zone(tmp_path, 5)
    assert isinstance(meters.find_meter("cpu"), RaplMeter)


def test_a_counter_that_began_again_is_not_taken_for_a_wrap(tmp_path: Path) -> None:
    """Falling by a whole range in a second would take more power than any package draws: it was reset."""
    now = [0.0]
    zone = rapl_zone(tmp_path, 200_000_000_000, wraps_at=262_143_328_850)
    meter = RaplMeter((zone,), clock=lambda: now[0])
    meter.read_j()
    now[0] = 1.0
    rapl_zone(tmp_path, 1_000, wraps_at=262_143_328_850)
    with pytest.raises(CounterReset, match="intel-rapl:0 began again from zero"):
        meter.read_j()
    rapl_zone(tmp_path, 6_001_000, wraps_at=262_143_328_850)
    now[0] = 2.0
    assert meter.read_j() == pytest.approx(6.0)  # counting goes on from where it began again


def test_a_zone_that_holds_no_number_is_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zone = rapl_zone(tmp_path, 5)
    (zone / "energy_uj").write_text("denied\n")
    monkeypatch.setattr(meters, "RAPL_ROOT", tmp_path)
    found = meters.find_meter("cpu")
    assert isinstance(found, NoMeter) and "is 'denied', not a number" in found.reasons[0]


def test_several_packages_are_summed(tmp_path: Path) -> None:
    zones = []
    for name in ("intel-rapl:0", "intel-rapl:1"):
        zone = tmp_path / name
        zone.mkdir()
        (zone / "energy_uj").write_text("0\n")
        (zone / "max_energy_range_uj").write_text("999999\n")
        zones.append(zone)
    meter = RaplMeter(tuple(zones))
    meter.read_j()
    for zone, counted in zip(zones, (250_000, 500_000)):
        (zone / "energy_uj").write_text(f"{counted}\n")
    assert meter.read_j() == pytest.approx(0.75)


class FakeNvml:
    """A driver at the boundary of its library: milliwatts, millijoules, integers, errors of its own kind.

    No GPU was at hand where this was written; what is tested is everything this side of the library's calls. The
    energy counter is renewed every 0.1 s only, as the real one's.
    """

    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2

    class NVMLError(Exception):
        """What the driver raises."""

    def __init__(self, *, root: bool = True, counter: bool = True, power_mw: int = 200_000) -> None:
        self.limit_mw, self.root, self.counter, self.power_mw = 300_000, root, counter, power_mw
        self.history: list[int] = []
        self.now_s = 0.0
        self.offset_mj = 1_000_000

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index:
            raise self.NVMLError("Invalid Argument")
        return index

    def nvmlDeviceGetName(self, _handle: Any) -> str:
        return "Fake GPU"

    def nvmlDeviceGetClockInfo(self, _handle: Any, which: int) -> int:
        return {self.NVML_CLOCK_SM: 1410, self.NVML_CLOCK_MEM: 1215}[which]

    def nvmlDeviceGetPowerManagementLimit(self, _handle: Any) -> int:
        return self.limit_mw

    def nvmlDeviceGetPowerManagementLimitConstraints(self, _handle: Any) -> tuple[int, int]:
        return 100_000, 350_000

    def nvmlDeviceSetPowerManagementLimit(self, _handle: Any, limit_mw: int) -> None:
        if not self.root:
            raise self.NVMLError("Insufficient Permissions")
        self.limit_mw = limit_mw
        self.history.append(limit_mw)

    def nvmlDeviceGetPowerUsage(self, _handle: Any) -> int:
        return min(self.power_mw, self.limit_mw)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Any) -> int:
        if not self.counter:
            raise self.NVMLError("Not Supported")
        renewed_s = int(self.now_s * 10 + 1e-9) / 10
        return self.offset_mj + int(renewed_s * self.nvmlDeviceGetPowerUsage(handle))


def test_limits_come_back_even_on_an_interrupt() -> None:
    driver = FakeNvml()
    gpu = Gpu(driver, object())
    limits, reason = settable(gpu, [150.0, 250.0, 20.0])
    assert limits == [250.0, 150.0]
    assert "limits outside 100 to 350 W left out: 20" in reason
    with pytest.raises(KeyboardInterrupt), restored(gpu):
        set_limit(gpu, 150.0)
        assert driver.limit_mw == 150_000
        raise KeyboardInterrupt
    assert driver.limit_mw == 300_000


def test_limits_come_back_when_the_process_is_asked_to_end() -> None:
    driver = FakeNvml()
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended, restored(Gpu(driver, object())):
        set_limit(Gpu(driver, object()), 150.0)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)
    assert ended.value.code == 128 + signal.SIGTERM
    assert driver.limit_mw == 300_000
    assert signal.getsignal(signal.SIGTERM) is before


def test_without_root_there_is_one_limit_and_it_is_said() -> None:
    limits, reason = settable(Gpu(FakeNvml(root=False), object()), [150.0, 250.0])
    assert limits == [300.0]
    assert "root would help" in reason


def test_the_counter_of_a_gpu_and_when_it_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    meter = meters.find_meter("cuda")
    assert isinstance(meter, NvmlMeter) and meter.sensor == "NVML total energy of Fake GPU"
    before = meter.read_j()
    driver.now_s = 2.0
    assert meter.read_j() - before == pytest.approx(400.0)
    driver.offset_mj = 0
    driver.now_s = 0.5
    with pytest.raises(CounterReset, match="driver was loaded again"):
        meter.read_j()
    driver.now_s = 1.5
    assert meter.read_j() == pytest.approx(300.0)
    absent = meters.find_meter("cuda", index=3)
    assert isinstance(absent, NoMeter) and "Invalid Argument" in absent.reasons[0]


def test_a_gpu_without_a_counter_is_sampled_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeNvml(counter=False)
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    meter = meters.find_meter("cuda")
    assert isinstance(meter, SampledNvmlMeter) and "an estimate" in meter.sensor
    meter.clock = lambda: driver.now_s
    meter._last, meter._total_j = None, 0.0
    meter.sample()
    for now_s, power_mw in ((1.0, 100_000), (3.0, 300_000)):
        driver.now_s, driver.power_mw = now_s, power_mw
        meter.sample()
    # Trapezoids: 1 s from 200 to 100 W, 2 s from 100 to 300 W.
    assert meter.sample() == pytest.approx(150.0 + 400.0)
    driver.nvmlDeviceGetPowerUsage = _unsupported  # type: ignore[method-assign]
    nothing = meters.find_meter("cuda")
    assert isinstance(nothing, NoMeter) and "neither its energy nor its power" in nothing.reasons[0]


def _unsupported(_handle: Any) -> int:
    raise FakeNvml.NVMLError("Not Supported")


def test_without_the_library_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    found = meters.find_meter("cuda")
    assert isinstance(found, NoMeter) and "pip install nvidia-ml-py" in found.reasons[0]


class FakeTrainer:
    """Known epochs and seconds, for the files; the last point may be slower than the first was."""

    warmed = 1.0

    class torch:
        """Only the version is asked for."""

        __version__ = "0"

    def __init__(self, device: str) -> None:
        self.device, self.calls = device, 0

    def timed(self, size: int, limit: float, repeats: int, meter: Any) -> Epochs:
        self.calls += 1
        slower = self.warmed if self.calls > 2 else 1.0
        joules = tuple((200.0, 2.1) for _ in range(repeats)) if meter else ()
        return Epochs(size, limit, tuple(slower * s for s in (2.0, 2.2, 2.1)[:repeats]), joules)

    def epochs_to(self, targets: Any, size: int, seed: int, most: int) -> dict[float, int]:
        return {0.8: seed + size // 16}


@pytest.fixture
def faked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(campaigns, "Trainer", FakeTrainer)
    monkeypatch.setattr(meters, "RAPL_ROOT", tmp_path / "nowhere")


def scenario(folder: Path) -> Any:
    workload = "dataset: boundary, network: two_layers, optimizer: sgd"
    job = f"{{{workload}, target_metric: 0.8, max_epochs: 9, default_batch_size: 16}}"
    text = f"domain: energy\njob: {job}\ntrace: {{train: train.csv, power: {{mine: power.csv}}}}\ntrials: 0\n"
    return forerun.loads(text, base=folder)


def test_assumed_watts_are_labelled_and_the_domain_reads_the_files(faked: None, tmp_path: Path) -> None:
    profile = measure(
        campaigns.Campaign(**{**_fields(SMALL), "assume_power_w": 45.0}), tmp_path, lambda _: None
    )
    assert profile["sensor"] == "assumed"
    assert any("ASSUMED to be 45" in note for note in profile["notes"])
    assert json.loads((tmp_path / "profile.json").read_text()) == json.loads(json.dumps(profile))
    result = forerun.simulate(scenario(tmp_path))
    assert result.summary["recurrences"] == 4
    low, high = profile["points"][0]["epoch_s_interval"]
    assert low < 2.1 < high


def test_unread_watts_stay_empty_and_are_refused_downstream(faked: None, tmp_path: Path) -> None:
    profile = measure(SMALL, tmp_path, lambda _: None)
    assert profile["sensor"] == "none" and profile["points"][0]["power_w"] is None
    assert any(note.startswith("no joules: RAPL") for note in profile["notes"])
    assert (tmp_path / "power.csv").read_text().splitlines()[1].endswith(",")
    with pytest.raises(TraceError, match=r"power.csv:2:average_power"):
        forerun.simulate(scenario(tmp_path))


def test_a_gpu_campaign_sets_limits_rests_and_puts_them_back(
    faked: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    rests: list[float] = []

    def rest(seconds: float) -> None:
        rests.append(seconds)
        driver.now_s += seconds

    asked = {**_fields(SMALL), "device": "cuda", "limits_w": (150.0, 250.0, 400.0), "cool_down_s": 7.0}
    profile = measure(Campaign(**asked), tmp_path, lambda _: None, rest)
    assert driver.history == [
        300_000,
        250_000,
        150_000,
        300_000,
    ]  # may one set? then the limits, then as before
    assert rests[1:] == [7.0] * 3
    assert [point["power_limit_w"] for point in profile["points"]] == [250.0, 250.0, 150.0, 150.0]
    assert profile["clocks_mhz"] == {"sm": 1410, "memory": 1215}
    assert profile["valid"]["power_limits_w"] == [150.0, 250.0]
    assert any("left out: 400" in note for note in profile["notes"])
    assert profile["points"][0]["epoch_j"] == pytest.approx(200.0)
    assert profile["points"][0]["power_w"] == pytest.approx(200.0 / 2.1)
    result = forerun.simulate(scenario(tmp_path))
    assert set(result.tables["configurations"]["power_limit_w"].tolist()) == {150.0, 250.0}


def test_a_machine_that_warms_up_is_said(
    faked: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steady = measure(SMALL, tmp_path, lambda _: None)
    assert not any("measured again at the end" in note for note in steady["notes"])
    monkeypatch.setattr(FakeTrainer, "warmed", 1.4)
    warmed = measure(SMALL, tmp_path, lambda _: None)
    assert any("+40 % seconds" in note and "--set cool_down" in note for note in warmed["notes"])


def test_later_measurements_against_the_profile(faked: None, tmp_path: Path) -> None:
    before = measure(SMALL, tmp_path, lambda _: None)
    assert all(row["inside"] for row in compared(before, before))
    slow = {**before, "points": [{**point, "epoch_s": 3.0} for point in before["points"]]}
    rows = compared(before, slow)
    assert [row["batch_size"] for row in rows] == [16, 64] and not any(row["inside"] for row in rows)


def test_the_predicted_interval_covers() -> None:
    """Means of three new windows fall into it in 95 % of 1,000 profiles."""
    rng = np.random.default_rng(2)
    inside = 0
    for _ in range(1000):
        drawn = rng.normal(2.0, 0.1, (2, 3))
        profiles = [
            {"points": [{"batch_size": 8, "power_limit_w": None, "epoch_s": float(each.mean()),
                         "epoch_s_sd": float(each.std(ddof=1)), "repeats": 3}]}
            for each in drawn
        ]  # fmt: skip
        inside += compared(*profiles)[0]["inside"]
    assert 930 <= inside <= 970


def _fields(campaign: Campaign) -> dict[str, Any]:
    return {name: getattr(campaign, name) for name in campaign.__struct_fields__}


def test_without_torch_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib

    real = importlib.import_module

    def absent(name: str, *rest: Any) -> Any:
        if name == "torch":
            raise ModuleNotFoundError(name)
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(UsageError, match=r"needs torch; `pip install 'forerun\[torch\]'"):
        Trainer("cpu")


def test_a_real_training_reaches_its_target() -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    trainer = Trainer("cpu")
    found = trainer.epochs_to((0.7, 0.85), 64, seed=1, most=40)
    assert 1 <= found[0.7] <= found[0.85] <= 40
    timed = trainer.timed(256, 0.0, 2, None)
    assert len(timed.seconds) == 2 and timed.mean_s > 0 and not timed.joules


def test_windows_span_many_updates_and_lost_ones_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Epochs of 30 ms under a counter renewed every 100 ms: a window holds enough of them; one falls into a reset."""
    driver = FakeNvml()
    meter = NvmlMeter(driver, 0, "a GPU")
    trainer = Trainer.__new__(Trainer)
    ran = [0]

    def epoch(*_: Any) -> None:
        driver.now_s += 0.03
        ran[0] += 1
        if ran[0] == 50:
            driver.offset_mj = 0  # in the second window

    monkeypatch.setattr(trainer, "start", lambda *_, **__: (None, None, None), raising=False)
    monkeypatch.setattr(trainer, "epoch", epoch, raising=False)
    found = trainer.timed(64, 250.0, 4, meter, clock=lambda: driver.now_s)
    assert ran[0] == 1 + 4 * 34
    assert len(found.seconds) == 4 and found.mean_s == pytest.approx(0.03)
    assert len(found.joules) == 3 and "began again" in found.lost[0]
    assert found.mean_w == pytest.approx(200.0, rel=0.1)
    bare = trainer.timed(64, 0.0, 3, None, clock=lambda: driver.now_s)
    assert ran[0] == 1 + 4 * 34 + 1 + 3 and not bare.joules and not bare.lost


@pytest.mark.parametrize(
    ("at", "points", "trainings"),
    [("batch size 32", 1, 0), ("training to the target, batch size 16, seed 2", 2, 1)],
)
def test_an_interrupt_writes_what_was_measured(
    faked: None, tmp_path: Path, at: str, points: int, trainings: int
) -> None:
    said: list[str] = []

    def tell(message: str) -> None:
        said.append(message)
        if message.startswith(at):
            raise KeyboardInterrupt

    campaign = campaigns.Campaign(**{**_fields(SMALL), "batch_sizes": (16, 32), "seeds": 2})
    profile = measure(campaign, tmp_path, tell)
    assert profile["stopped"] == f"stopped: {points} points and {trainings} of 4 trainings were measured"
    assert said[0] == "batch size 16 (1 of 2)" and profile["stopped"] in profile["notes"]
    assert json.loads((tmp_path / "profile.json").read_text())["points"] == profile["points"]
    assert len((tmp_path / "power.csv").read_text().splitlines()) == 1 + points
    assert len((tmp_path / "train.csv").read_text().splitlines()) == 1 + trainings * len(campaign.targets)


def test_an_interrupt_before_the_first_point_leaves_nothing(faked: None, tmp_path: Path) -> None:
    def tell(message: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure(SMALL, tmp_path / "out", tell)
    assert not (tmp_path / "out").exists()


def test_a_column_of_a_gpu_with_digits_without_end_is_no_gpu(tmp_path: Path) -> None:
    from forerun.replication.zeus.windows import read_windows

    path = tmp_path / "windows.csv"
    path.write_text(f"gpu{'9' * 5000}_energy\n1\n")
    with pytest.raises(TraceError, match=r"windows\.csv"):
        read_windows(path)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("batch_sizes=[]", "$.batch_sizes: is empty"),
        ("batch_sizes=[32,0]", "$.batch_sizes[1]: 0 is below 1"),
        ("repeats=1", "$.repeats: 1 is below 2"),
        ("assume_power=-3W", "$.assume_power: '-3W' is negative"),
        ("seds=2", "unknown key 'seds'; did you mean 'seeds'? known: assume_power_w, "),
    ],
)
def test_a_wrong_setting_is_one_line(setting: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line(["measure", "energy", "--set", setting]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
