"""One measurement campaign: what to measure, and the files it writes."""

from __future__ import annotations

import contextlib
import csv
import json
import math
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from forerun.core.atomic_write import refuse_foreign
from forerun.core.measure.progress import StepProgress
from forerun.core.result.stats import mean_interval, student_quantile
from forerun.core.scenario.numbers import Count, NotNegative, Positive
from forerun.core.scenario.spec import Spec, to_data
from forerun.core.study.executors.interrupts import terminable
from forerun.core.version import VERSION
from forerun.energy.measure.limits import Gpu, clocks_mhz, current_w, restored, set_limit, settable
from forerun.energy.measure.meters import Meter, NoMeter, NvmlMeter, SampledNvmlMeter, find_meter
from forerun.energy.measure.training import Epochs, Trainer

#: how long the idle draw is measured [s]
IDLE_S: Final = 1.0
#: relative change of the first point's seconds from which on a note reports it, beyond its interval
DRIFT_SHARE: Final = 0.05
KEY: Final = ("boundary", "two_layers", "sgd")


class Campaign(Spec, frozen=True, kw_only=True):
    """What to measure.

    device: cpu or cuda. batch_sizes: samples a step. limits_w: power limits of a GPU [W] (default: the present one).
    targets: accuracies to reach. seeds: trainings a batch size. repeats: timed windows a point. max_epochs: epochs after
    which a training has failed. assume_power_w: replaces watts that cannot be read, labelled [W] (default 0: they stay
    empty). cool_down_s: pause between points, so that one does not heat the next [s] (default 0).
    """

    device: Literal["cpu", "cuda"] = "cpu"
    batch_sizes: Annotated[tuple[Count, ...], msgspec.Meta(min_length=1)] = (32, 128, 512)
    limits_w: tuple[Positive, ...] = ()
    targets: tuple[Positive, ...] = (0.8, 0.85, 0.9)
    seeds: Count = 3
    repeats: Annotated[int, msgspec.Meta(ge=2)] = 5
    max_epochs: Count = 60
    assume_power_w: NotNegative = 0.0
    cool_down_s: NotNegative = 0.0


def measure(
    campaign: Campaign,
    folder: Path,
    progress: Callable[[str], None],
    rest: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """Measure, write train.csv, power.csv and profile.json into the folder, and return the profile.

    An interrupt after the first point writes and returns what was measured, with `stopped` in words.

    Parameters
    ----------
    campaign : what to measure.
    folder : where the three files are written; those of an earlier measurement are replaced.
    progress : receives one line a step.
    rest : sleeps for seconds (default: `time.sleep`).

    Raises UsageError without torch or without the device asked for, StoreError for a folder with such files of
    another program, KeyboardInterrupt if no point was measured yet.
    """
    refuse_foreign(
        folder, ("train.csv", "power.csv", "profile.json"), marker="profile.json", sign=b"forerun.measurement"
    )
    trainer = Trainer(campaign.device)
    sensor = find_meter(campaign.device)
    notes: list[str] = []
    meter: Meter | None = None
    if isinstance(sensor, NoMeter):
        notes += [f"no joules: {reason}" for reason in sensor.reasons]
    else:
        meter = sensor
    idle_w = _idle_w(meter, rest)
    epochs: list[Epochs] = []
    clocks: dict[str, int] = {}
    paths: dict[tuple[int, int], dict[float, int]] = {}
    runs = [(size, seed) for size in campaign.batch_sizes for seed in range(1, campaign.seeds + 1)]
    stopped = ""
    try:
        with terminable():
            _epochs(campaign, trainer, meter, notes, progress, rest, epochs, clocks)
            _note_drift(campaign, trainer, epochs, notes)
            steps = StepProgress(progress, [0.0] * len(runs))
            for size, seed in runs:
                steps.begin(f"training to the target, batch size {size}, seed {seed}")
                paths[size, seed] = trainer.epochs_to(campaign.targets, size, seed, campaign.max_epochs)
    except (KeyboardInterrupt, SystemExit):  # the second where power limits were set: a request to end
        if not epochs:
            raise
        stopped = f"stopped: {len(epochs)} points and {len(paths)} of {len(runs)} trainings were measured"
        notes.append(stopped)
    finally:
        if isinstance(meter, SampledNvmlMeter):
            meter.stop()
    notes += [
        f"batch size {each.batch_size}: {len(each.lost)} of {len(each.seconds)} windows gave no joules ({each.lost[0]})"
        for each in epochs
        if each.lost
    ]
    metered = any(not math.isnan(each.mean_w) for each in epochs)
    assumed = not metered and campaign.assume_power_w > 0
    if assumed:
        notes.append(f"watts are ASSUMED to be {campaign.assume_power_w:g}, not measured")
    folder.mkdir(parents=True, exist_ok=True)
    _write_train(campaign, paths, folder / "train.csv")
    _write_power(epochs, campaign.assume_power_w if assumed else math.nan, folder / "power.csv")
    if not metered and not assumed:
        notes.append(
            "power.csv has no watts: the energy domain reads it once they are there (or with --set assume_power=W)"
        )
    profile = {
        "format": "forerun.measurement/1",
        "domain": "energy",
        "forerun": VERSION,
        "campaign": to_data(campaign),
        "sensor": meter.sensor if meter else ("assumed" if assumed else "none"),
        "idle_w": idle_w,
        "clocks_mhz": clocks,
        "host": {"machine": platform.machine(), "python": platform.python_version()},
        "torch": str(trainer.torch.__version__),
        "valid": {
            "batch_sizes": [min(campaign.batch_sizes), max(campaign.batch_sizes)],
            "power_limits_w": sorted({each.limit_w for each in epochs if each.limit_w}),
            "device": campaign.device,
        },
        "points": [_point(each) for each in epochs],
        "notes": notes,
    }
    if stopped:
        profile["stopped"] = stopped
    (folder / "profile.json").write_text(json.dumps(profile, indent=1) + "\n")
    return profile


def _idle_w(
    meter: Meter | None, rest: Callable[[float], None], clock: Callable[[], float] = time.monotonic
) -> float | None:
    """Draw while nothing is trained [W]; None where it cannot be read.

    Parameters
    ----------
    meter : reads joules.
    rest : sleeps for seconds.
    clock : reads seconds.
    """
    if meter is None:
        return None
    try:
        before_j, before_s = meter.read_j(), clock()
        rest(IDLE_S)
        joules, seconds = meter.read_j() - before_j, clock() - before_s
    except OSError:
        return None
    return joules / seconds if seconds > 0 else None


def _epochs(
    campaign: Campaign,
    trainer: Trainer,
    meter: Meter | None,
    notes: list[str],
    progress: Callable[[str], None],
    rest: Callable[[float], None],
    timed: list[Epochs],
    clocks: dict[str, int],
) -> None:
    """Add the timed epochs of every point to `timed`, and the clocks while training to `clocks`.

    The limit is restored whatever happens.

    Parameters
    ----------
    campaign : batch sizes, limits and repeats.
    trainer : the data and the device.
    meter : reads joules (None: seconds only).
    notes : added to, where a limit cannot be set.
    progress : receives one line a point.
    rest : sleeps for seconds, between points that a pause is asked for.
    timed, clocks : added to as points are measured, so that they are there if this is interrupted.
    """
    limits = [0.0]
    guard: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    gpu = Gpu(meter.nvml, meter.handle) if isinstance(meter, (NvmlMeter, SampledNvmlMeter)) else None
    if gpu is not None:
        limits, reason = settable(gpu, campaign.limits_w or [current_w(gpu)])
        guard = restored(gpu)
        notes += [reason] if reason else []
    elif campaign.limits_w:
        notes.append("power limits are a GPU's: none was set here")
    steps = StepProgress(progress, [0.0] * (len(limits) * len(campaign.batch_sizes)))
    with guard:
        for limit in limits:
            if gpu is not None and limit != current_w(gpu):
                set_limit(gpu, limit)
            for size in campaign.batch_sizes:
                if timed and campaign.cool_down_s:
                    rest(campaign.cool_down_s)
                steps.begin(f"batch size {size}" + (f" at {limit:g} W" if limit else ""))
                timed.append(trainer.timed(size, limit, campaign.repeats, meter))
                if gpu is not None and not clocks:
                    clocks.update(clocks_mhz(gpu))


def _note_drift(campaign: Campaign, trainer: Trainer, epochs: list[Epochs], notes: list[str]) -> None:
    """Measure the first point's seconds again, and note a difference.

    It shows a machine that warmed up or was disturbed. Where the first limit is no longer set, nothing is measured.
    """
    first = epochs[0]
    if any(each.limit_w != first.limit_w for each in epochs):
        return  # the first limit is no longer set
    again = trainer.timed(first.batch_size, first.limit_w, campaign.repeats, None)
    low, high = interval(first.seconds)
    if not low <= again.mean_s <= high and abs(again.mean_s / first.mean_s - 1) > DRIFT_SHARE:
        change = 100 * (again.mean_s / first.mean_s - 1)
        notes.append(
            f"batch size {first.batch_size} took {change:+.0f} % seconds when measured again at the end: the machine "
            "warmed up or was busy; --set cool_down=30s would help"
        )


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Student's 95 % interval of a mean of seconds, joules or watts, which are not negative."""
    mean = mean_interval(values)
    return max(mean.low, 0.0), mean.high


def _point(each: Epochs) -> dict[str, Any]:
    """A timed configuration as plain data, with 95 % intervals."""
    joules = [value for value, _ in each.joules]
    return {
        "batch_size": each.batch_size,
        "power_limit_w": each.limit_w or None,
        "epoch_s": each.mean_s,
        "epoch_s_interval": list(interval(each.seconds)),
        "epoch_s_sd": math.sqrt(
            math.fsum((s - each.mean_s) ** 2 for s in each.seconds) / (len(each.seconds) - 1)
        ),
        "epoch_j": math.fsum(joules) / len(joules) if joules else None,
        "epoch_j_interval": list(interval(joules)) if len(joules) > 1 else None,
        "power_w": None if math.isnan(each.mean_w) else each.mean_w,
        "repeats": len(each.seconds),
    }


def compared(before: dict[str, Any], now: dict[str, Any]) -> list[dict[str, Any]]:
    """Seconds an epoch that an earlier profile predicts beside those measured now, one a point of both.

    `predicted_s` is the interval in which the mean of as many new windows falls in 95 % (Student's t); `inside` says
    whether it did.

    Parameters
    ----------
    before, now : profiles as `measure` returns them; points are matched by batch size and power limit.
    """
    earlier = {(point["batch_size"], point["power_limit_w"]): point for point in before["points"]}
    rows = []
    for point in now["points"]:
        old = earlier.get((point["batch_size"], point["power_limit_w"]))
        if old is None:
            continue
        n, m = old["repeats"], point["repeats"]
        half = student_quantile(0.975, n - 1) * old["epoch_s_sd"] * math.sqrt(1 / n + 1 / m)
        low, high = old["epoch_s"] - half, old["epoch_s"] + half
        rows.append(
            {
                "batch_size": point["batch_size"],
                "power_limit_w": point["power_limit_w"],
                "predicted_s": [low, high],
                "measured_s": point["epoch_s"],
                "inside": low <= point["epoch_s"] <= high,
            }
        )
    return rows


def _write_train(campaign: Campaign, paths: dict[tuple[int, int], dict[float, int]], path: Path) -> None:
    """Write the trainings in the public format.

    Parameters
    ----------
    paths : by batch size and seed, the epochs to each target that was reached; `nan` is written for the others.
    """
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
    """Write the measured epochs in the public format.

    Watts stay empty if nothing was read or assumed; without a limit the draw is written as the limit.

    Parameters
    ----------
    assumed_w : draw that was given [W] (0: none).
    """
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
