"""Real measurement: counters that wrap, limits that come back, honest refusals, files that the room reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import forerun
from forerun.errors import TraceError, UsageError
from forerun.measure.energy import campaign as campaigns
from forerun.measure.energy import meters
from forerun.measure.energy.campaign import Campaign, measure
from forerun.measure.energy.limits import restored, set_limit, settable
from forerun.measure.energy.meters import NoMeter, NvmlMeter, RaplMeter
from forerun.measure.energy.training import Epochs, Trainer

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


class FakeNvml:
    """A driver whose limits may or may not be set; milliwatts, as the real one."""

    class NVMLError(Exception):
        """What the driver raises."""

    def __init__(self, *, root: bool) -> None:
        self.limit_mw, self.root, self.history = 300_000, root, []  # type: ignore[var-annotated]

    def nvmlDeviceGetPowerManagementLimit(self, _handle: Any) -> int:
        return self.limit_mw

    def nvmlDeviceGetPowerManagementLimitConstraints(self, _handle: Any) -> tuple[int, int]:
        return 100_000, 350_000

    def nvmlDeviceSetPowerManagementLimit(self, _handle: Any, limit_mw: int) -> None:
        if not self.root:
            raise self.NVMLError("Insufficient Permissions")
        self.limit_mw = limit_mw
        self.history.append(limit_mw)

    def nvmlDeviceGetTotalEnergyConsumption(self, _handle: Any) -> int:
        return 2_500


def test_limits_come_back_even_on_an_interrupt() -> None:
    driver = FakeNvml(root=True)
    meter = NvmlMeter(driver, object(), "a GPU")
    assert meter.read_j() == 2.5
    limits, reason = settable(meter, [150.0, 250.0, 20.0])
    assert limits == [250.0, 150.0]
    assert "limits outside 100 to 350 W left out: 20" in reason
    with pytest.raises(KeyboardInterrupt), restored(meter):
        set_limit(meter, 150.0)
        assert driver.limit_mw == 150_000
        raise KeyboardInterrupt
    assert driver.limit_mw == 300_000


def test_without_root_there_is_one_limit_and_it_is_said() -> None:
    meter = NvmlMeter(FakeNvml(root=False), object(), "a GPU")
    limits, reason = settable(meter, [150.0, 250.0])
    assert limits == [300.0]
    assert "root would help" in reason


class FakeTrainer:
    """Known epochs and seconds, for the files."""

    class torch:
        """Only the version is asked for."""

        __version__ = "0"

    def __init__(self, device: str) -> None:
        self.device = device

    def timed(self, size: int, limit: float, repeats: int, meter: Any) -> Epochs:
        return Epochs(size, limit, (2.0, 2.2, 2.1)[:repeats], ())

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


def test_assumed_watts_are_labelled_and_the_room_reads_the_files(faked: None, tmp_path: Path) -> None:
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


def _fields(campaign: Campaign) -> dict[str, Any]:
    return {name: getattr(campaign, name) for name in campaign.__dataclass_fields__}


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
