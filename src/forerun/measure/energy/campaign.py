"""One measuring campaign: what to measure, and the files it leaves."""

from __future__ import annotations

import contextlib
import csv
import json
import math
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import forerun
from forerun.measure.energy.limits import current_w, restored, set_limit, settable
from forerun.measure.energy.meters import Meter, NoMeter, NvmlMeter, find_meter
from forerun.measure.energy.training import Epochs, Trainer
from forerun.study.statistics import student_quantile

KEY: Final = ("boundary", "two_layers", "sgd")


@dataclass(frozen=True)
class Campaign:
    """What to measure. `assume_power_w` above 0 stands in for watts that cannot be read, and is labelled."""

    device: str
    batch_sizes: tuple[int, ...]
    limits_w: tuple[float, ...]
    targets: tuple[float, ...]
    seeds: int
    repeats: int
    max_epochs: int
    assume_power_w: float = 0.0


def measure(campaign: Campaign, folder: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    """Measure, write train.csv, power.csv and profile.json into the folder, and return the profile.

    Raises UsageError without torch or without the device asked for.
    """
    trainer = Trainer(campaign.device)
    found = find_meter(campaign.device)
    notes: list[str] = []
    meter: Meter | None = None
    if isinstance(found, NoMeter):
        notes += [f"no joules: {reason}" for reason in found.reasons]
    else:
        meter = found
    epochs = _epochs(campaign, trainer, meter, notes, tell)
    paths = {
        (size, seed): trainer.epochs_to(campaign.targets, size, seed, campaign.max_epochs)
        for size in campaign.batch_sizes
        for seed in range(1, campaign.seeds + 1)
    }
    assumed = meter is None and campaign.assume_power_w > 0
    if assumed:
        notes.append(f"watts are ASSUMED to be {campaign.assume_power_w:g}, not measured")
    folder.mkdir(parents=True, exist_ok=True)
    _write_train(campaign, paths, folder / "train.csv")
    _write_power(epochs, campaign.assume_power_w if assumed else math.nan, folder / "power.csv")
    if meter is None and not assumed:
        notes.append(
            "power.csv has no watts: the energy room reads it once they are there (or with --assume-power)"
        )
    profile = {
        "format": "forerun.measurement/1",
        "domain": "energy",
        "forerun": forerun.__version__,
        "campaign": asdict(campaign),
        "sensor": meter.sensor if meter else ("assumed" if assumed else "none"),
        "host": {"machine": platform.machine(), "python": platform.python_version()},
        "torch": str(trainer.torch.__version__),
        "points": [_point(each) for each in epochs],
        "notes": notes,
    }
    (folder / "profile.json").write_text(json.dumps(profile, indent=1) + "\n")
    return profile


def _epochs(
    campaign: Campaign, trainer: Trainer, meter: Meter | None, notes: list[str], tell: Callable[[str], None]
) -> list[Epochs]:
    """Timed epochs of every point; limits are put back whatever happens."""
    limits = [0.0]
    guard: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    gpu = meter if isinstance(meter, NvmlMeter) else None
    if gpu is not None:
        limits, reason = settable(gpu, campaign.limits_w or [current_w(gpu)])
        guard = restored(gpu)
        notes += [reason] if reason else []
    elif campaign.limits_w:
        notes.append("power limits are a GPU's: none was set here")
    found = []
    with guard:
        for limit in limits:
            if gpu is not None and limit != current_w(gpu):
                set_limit(gpu, limit)
            for size in campaign.batch_sizes:
                tell(f"batch size {size}" + (f" at {limit:g} W" if limit else ""))
                found.append(trainer.timed(size, limit, campaign.repeats, meter))
    return found


def _point(each: Epochs) -> dict[str, Any]:
    n, mean = len(each.seconds), each.mean_s
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in each.seconds) / (n - 1))
    half = student_quantile(0.975, n - 1) * spread / math.sqrt(n)
    return {
        "batch_size": each.batch_size,
        "power_limit_w": each.limit_w or None,
        "epoch_s": mean,
        "epoch_s_interval": [mean - half, mean + half],
        "power_w": None if math.isnan(each.mean_w) else each.mean_w,
        "repeats": n,
    }


def _write_train(campaign: Campaign, paths: dict[tuple[int, int], dict[float, int]], path: Path) -> None:
    dataset, network, optimizer = KEY
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(
            (
                "dataset",
                "network",
                "batch_size",
                "optimizer",
                "learning_rate",
                "run",
                "target_metric",
                "target_epoch",
            )
        )
        for (size, seed), reached in paths.items():
            for target in campaign.targets:
                rows.writerow(
                    (dataset, network, size, optimizer, "", seed, target, reached.get(target, "nan"))
                )


def _write_power(epochs: list[Epochs], assumed_w: float, path: Path) -> None:
    """Watts stay empty where nothing was read and nothing assumed; without a limit the draw stands as limit."""
    dataset, network, optimizer = KEY
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(
            (
                "dataset",
                "network",
                "batch_size",
                "optimizer",
                "power_limit",
                "time_per_epoch",
                "average_power",
            )
        )
        ceiling = max((each.mean_w for each in epochs if not math.isnan(each.mean_w)), default=assumed_w)
        for each in epochs:
            watts = assumed_w if math.isnan(each.mean_w) else each.mean_w
            limit = each.limit_w or ceiling
            shown = ["" if math.isnan(value) else f"{value:.6g}" for value in (limit, watts)]
            rows.writerow(
                (dataset, network, each.batch_size, optimizer, shown[0], repr(each.mean_s), shown[1])
            )
