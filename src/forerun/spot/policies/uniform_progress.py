"""Keep the work done on the line from nothing to everything at the deadline."""

from __future__ import annotations

from forerun.spot.policy import DeadlineRule, DeadlineView, Held


class UniformProgress(DeadlineRule, frozen=True, kw_only=True, tag="uniform_progress"):
    """Buy on-demand when the work falls behind an even pace, spot otherwise, with hysteresis against changes.

    [Wu et al., Can't be late, NSDI'24, section 4.2 and algorithm 1.]
    """

    def choose(self, view: DeadlineView) -> Held:
        """Follow the even pace, then the two safety rules near the deadline."""
        if view.remaining_s <= 0:
            return Held.NONE
        job = view.job
        pace = job.work_s / job.deadline_s
        answer = Held.SPOT if view.spot_available else Held.NONE
        if view.done_s < view.elapsed_s * pace:
            answer = Held.SPOT if view.spot_available else Held.ON_DEMAND
        ahead = (view.elapsed_s + 2 * job.changeover_s) * pace < view.done_s
        if view.held is Held.ON_DEMAND and not (view.spot_available and ahead):
            answer = Held.ON_DEMAND
        return self._in_time(view, answer)

    def _in_time(self, view: DeadlineView, answer: Held) -> Held:
        """Near the deadline: leave spot for on-demand while there is still time to change over."""
        job = view.job
        left_s = view.left_s
        free_spot = job.changeover_s == 0 and view.spot_available
        if view.ticks_needed_s(2) >= left_s and view.held is not Held.SPOT:
            answer = Held.SPOT if free_spot else Held.ON_DEMAND
        if view.ticks_needed_s(1) >= left_s:
            stays = view.held is Held.SPOT and view.changeover_left_s < 1e-3
            answer = Held.SPOT if stays or free_spot else Held.ON_DEMAND
        return answer
