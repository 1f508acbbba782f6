"""Classes of requests."""

from __future__ import annotations

from forerun.serving.llm.policy.scheduling import Class, Classes, Proportion, Rules, Scheduler, class_problems


class Priority(Scheduler, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="priority"):
    """As chunked-prefill, in order of the requests' classes, lower ones first [Llumnix: Sun et al., OSDI'24].

    Requests queue, get tokens and keep their blocks by class; within a class the order is that of arrival. These are
    the priorities of Llumnix within one replica, and vLLM's priority scheduling. A class that is never idle may leave
    nothing to the classes behind it.

    shares: classes 0, 1, ... are drawn in these proportions (default: none is drawn).
    classes: the class of each request, in order of arrival (default: none is listed).

    Without both, the trace has a column `priority`.
    """

    shares: tuple[Proportion, ...] = ()
    classes: tuple[Class, ...] = ()

    def problems(self) -> list[tuple[str, str]]:
        """Classes come from one place."""
        return class_problems(self.shares, self.classes)

    def rules(self) -> Rules:
        """Everything together, in chunks, by class."""
        return Rules(classes=Classes(self.shares, self.classes))

    def vllm_flags(self) -> tuple[str, ...]:
        """Classes of requests, lower ones first."""
        return ("--no-async-scheduling", "--scheduling-policy", "priority")
