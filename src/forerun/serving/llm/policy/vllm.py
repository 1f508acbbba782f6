"""What the schedulers of vLLM do in its versions."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec

from forerun.serving.llm.policy.scheduling import Class, Classes, Proportion, Rules, Scheduler, class_problems


class Vllm(Scheduler, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the scheduler of vLLM's engine V1 does in one version, step for step [vLLM: Kwon et al., SOSP'23].

    Decodes and chunks of prompts share iterations of a budget of tokens; who finds too few blocks has the request preempted
    that was admitted last. Fields are the server's flags with that version's defaults. Each version is compared with the
    program itself on drawn workloads (`make validate-vllm`).

    async_scheduling: compose an iteration when the one before it begins, so that the processor need not wait for the
        scheduler (left out: on since 0.14). vLLM turns it off by itself for drafts by n-grams.
    scheduler_reserve_full_isl: admit a request only if there are blocks for its whole prompt, not for its first chunk alone
        (left out: on since 0.19; before, there is no such flag).
    enable_chunked_prefill: cut prompts where the budget ends; otherwise they wait until the budget suffices (default on).
    long_prefill_token_threshold: tokens of one request in an iteration at most; 0: no limit (default).
    policy: `fcfs`, by arrival (default), or `priority`, by class, lower ones first; then who is preempted is, of the lowest
        class, who came last.
    shares, classes: with `priority`, as those of the scheduler `priority`.
    """

    async_scheduling: bool | None = None
    scheduler_reserve_full_isl: bool | None = None
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: Annotated[int, msgspec.Meta(ge=0, le=10_000_000)] = 0
    policy: Literal["fcfs", "priority"] = "fcfs"
    shares: tuple[Proportion, ...] = ()
    classes: tuple[Class, ...] = ()

    #: the release that it was compared with
    release: ClassVar[str]
    composing: ClassVar[str] = "async_scheduling"

    @property
    def compared(self) -> str:
        """The program that it equals."""
        return f"vLLM {self.release}"

    @property
    def version(self) -> tuple[int, ...]:
        """(major, minor) of the release."""
        return tuple(int(number) for number in self.release.split(".")[:2])

    def problems(self) -> list[tuple[str, str]]:
        """The version has the flags, and classes come from one place."""
        found = class_problems(self.shares, self.classes)
        if (self.shares or self.classes) and self.policy == "fcfs":
            found.append(("policy", "classes count with policy: priority"))
        if self.scheduler_reserve_full_isl is not None and self.version < (0, 19):
            found.append(("scheduler_reserve_full_isl", "vLLM has this flag since 0.19"))
        return found

    def vllm_flags(self) -> tuple[str, ...]:
        """Those that are not left to the server's defaults."""
        flags = {
            "async-scheduling": self.async_scheduling,
            "scheduler-reserve-full-isl": self.scheduler_reserve_full_isl,
            "enable-chunked-prefill": None if self.enable_chunked_prefill else False,
        }
        said = [f"--{'' if on else 'no-'}{name}" for name, on in flags.items() if on is not None]
        if self.long_prefill_token_threshold:
            said += ["--long-prefill-token-threshold", str(self.long_prefill_token_threshold)]
        if self.policy != "fcfs":
            said += ["--scheduling-policy", self.policy]
        return tuple(said)

    def rules(self) -> Rules:
        """What this version does under these flags."""
        ranked = self.policy == "priority"
        return Rules(
            prompts="in chunks" if self.enable_chunked_prefill else "whole beside decodes",
            whole_must_fit=_given(self.scheduler_reserve_full_isl, self.version >= (0, 19)),
            longest_chunk=self.long_prefill_token_threshold,
            alone_unlimited=self.version >= (0, 31),
            classes=Classes(self.shares, self.classes) if ranked else None,
            victim="last of the lowest class" if ranked else "last of the running",
            drafts="all",
            pads_drafts=self.version >= (0, 25),
            blank_first=self.version >= (0, 24),
            ahead=_given(self.async_scheduling, self.version >= (0, 14)),
        )


def _given(flag: bool | None, default: bool) -> bool:
    return default if flag is None else flag
