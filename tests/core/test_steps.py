"""What a measurement says of itself: the step, how many there are, and the time that is left."""

from __future__ import annotations

from forerun.core.measure.progress import StepProgress


def test_expected_times_are_said_first_and_then_measured_ones() -> None:
    now, said = [0.0], []
    steps = StepProgress(said.append, [20.0, 40.0, 10.0], clock=lambda: now[0])
    steps.begin("one")
    for second in range(1, 31):
        now[0] = float(second)
        steps.at(second / 30, f"{second} of 30")
    steps.begin("two")
    assert said[0] == "one (1 of 3), about 70 s left"
    # The step takes 30 s, not 20: after 6 s a fifth is done, so 24 s are left of it, and 50 s of the others.
    assert said[1:] == [
        "  5 of 30, about 75 s left",
        "  10 of 30, about 70 s left",
        "  15 of 30, about 65 s left",
        "  20 of 30, about 60 s left",
        "  25 of 30, about 55 s left",
        "  30 of 30, about 50 s left",
        "two (2 of 3), about 50 s left",
    ]


def test_steps_of_unknown_length_last_as_long_as_those_before() -> None:
    now, said = [0.0], []
    steps = StepProgress(said.append, [0.0] * 4, clock=lambda: now[0])
    for name in "abc":
        steps.begin(name)
        now[0] += 10.0
    assert said == ["a (1 of 4)", "b (2 of 4), about 30 s left", "c (3 of 4), about 20 s left"]
