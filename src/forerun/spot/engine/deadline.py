"""One instance that is spot, on-demand or nothing, under a deadline rule, tick by tick.

At the end of each tick, what was rented is paid for and has worked, after the rest of its change-over; spot that is no
longer available is taken away; then the rule says what to rent. At the end one more tick of its last answer is paid.
[Wu et al., Can't be late: optimizing spot instance savings under deadlines, NSDI'24.]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from forerun.core.errors import Infeasible, PolicyError
from forerun.spot.policy import DeadlineJob, DeadlineRule, DeadlineView, Held


@dataclass(frozen=True, slots=True)
class DeadlineRun:
    """What a job under a deadline rule cost and when it was done.

    Parameters
    ----------
    cost_usd : of all ticks paid for.
    finish_s : since the start.
    held : what was paid for in each tick, the surplus one at the end too.
    """

    cost_usd: float
    finish_s: float
    held: Sequence[Held]


def run_deadline(job: DeadlineJob, rule: DeadlineRule, available: Sequence[bool]) -> DeadlineRun:
    """Follow a policy over the ticks of a trace.

    Parameters
    ----------
    job : its work, deadline, prices, and the length of a tick.
    rule : builds the policy.
    available : by tick, whether spot can be rented.

    Raises Infeasible if the trace ends before the work is done, PolicyError if spot is asked for where none is.
    """
    policy = rule.build()
    held, over_s, done_s = Held.NONE, 0.0, 0.0
    paid: list[Held] = []
    for tick, spot in enumerate(available):
        paid.append(held)
        if held is not Held.NONE:  # the tick that ends here was worked, even if spot vanishes at its end
            credit_s = max(job.tick_s - over_s, 0.0)
            over_s -= job.tick_s - credit_s
            done_s += min(credit_s, job.work_s - done_s)
        if held is Held.SPOT and not spot:
            held = Held.NONE
        view = DeadlineView(tick * job.tick_s, done_s, held, over_s, spot, job)
        answer = policy.choose(view)
        if answer is Held.SPOT and not spot:
            raise PolicyError.at(f"tick {tick}", f"{type(rule).__name__} asks for spot where there is none")
        if done_s >= job.work_s:
            paid.append(answer)
            return DeadlineRun(sum(map(job.price_usd, paid)), tick * job.tick_s, paid)
        if answer is not Held.NONE and answer is not held:
            over_s = job.changeover_s
        held = answer
    raise Infeasible.at(
        "deadline job", f"{job.work_s - done_s:.0f} s of work are left after {len(available)} ticks"
    )
