"""The file of a replay: what a page shows of it, and of one of its jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from forerun.core.documents import JobDocument
from forerun.core.errors import StoreError, worded
from forerun.core.result.document import ExplainedJob, StoredDocument
from forerun.core.result.figures import Figure
from forerun.core.result.reading import check_figures, record
from forerun.core.scenario.spec import Spec
from forerun.core.version import VERSION
from forerun.site.replay.explain import explain_job
from forerun.site.replay.stored import REPLAY_FORMAT, kept_replay, replay_figures
from forerun.site.replay.story import JobStory

#: title and explanation of each table of a job
_TABLES: Final = {
    "life": ("What happened to it", "after: since its submission"),
    "causes": ("What it waited for in the replay", "the parts sum to its wait"),
    "waits": (
        "Every stretch in which it waited",
        "in use, free: of the nodes that it may use, means over the stretch; most of it: the jobs that had most then",
    ),
    "ahead": (
        "Who had the nodes while it was in the queue",
        "share: of all that was in use then; came: how it came to be ahead",
    ),
    "users": ("The same by user", "of its nodes: of all that it may use, used or not"),
    "changes": (
        "What would have changed its start, each replayed alone",
        "after: since its submission as it was; all else as it was, and other jobs held as they were",
    ),
}


class _Replayed(Spec, frozen=True, kw_only=True):
    """The content of a file of a replay."""

    format: str
    forerun: str
    why: str
    log: dict[str, Any]
    calibrate_until_s: float
    scored_until_s: float
    system: dict[str, Any]
    policy: str
    named: str | None
    findings: tuple[dict[str, str], ...]
    notes: tuple[str, ...]
    card: tuple[dict[str, Any], ...]
    policies: tuple[dict[str, Any], ...]
    classes: tuple[dict[str, Any], ...]
    over_time: dict[str, tuple[float, ...]]
    pool: str
    beside: tuple[dict[str, Any], ...] = ()
    system_files: tuple[dict[str, str], ...] = ()


class ReplayDocument(JobDocument):
    """A replay of a job log."""

    format = REPLAY_FORMAT

    def read(self, name: str, content: Mapping[str, Any], file: str = "") -> StoredDocument:
        """What a page shows of a replay."""
        where = file or name
        record(content, _Replayed, where)
        check_figures(content, where)
        try:
            return StoredDocument(
                name=name,
                file=where,
                kind="replay",
                domain="cluster",
                version=content["forerun"],
                answer=content["why"],
                notes=tuple(content["notes"]),
                facts={str(line["figure"]): line["measured"] for line in content["card"]},
                tables={
                    **(
                        {"waits beside history": _in_hours(content["beside"])}
                        if content.get("beside")
                        else {}
                    ),
                    "report card": content["card"],
                    "policies, one decision at a time": content["policies"],
                    "what the log says of the machine": content["findings"],
                    "mean wait by class": _in_hours(content["classes"]),
                },
                provenance={
                    key: value for key, value in content["log"].items() if not isinstance(value, list)
                },
                content=content,
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise StoreError.at(where, f"is no replay: {worded(error)}") from error

    def figures(self, content: Mapping[str, Any]) -> tuple[Figure, ...]:
        """History and replay side by side."""
        return replay_figures(content)

    def explain_job(
        self, content: Mapping[str, Any], file: Path, job: str, progress: Callable[[str], None]
    ) -> ExplainedJob:
        """Replay the log again, and explain one of its jobs."""
        made = kept_replay(file, content)
        story, origin_s = explain_job(made, job, progress=progress), made.log.origin_s
        page = _page(story, file.stem)
        return ExplainedJob.of(page, story.shown(origin_s), _TABLES, story.data(origin_s))


def _in_hours(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Records with their seconds in hours."""
    return [
        {
            f"{key[:-2]}_h" if key.endswith("_s") else key: cell / 3600 if key.endswith("_s") else cell
            for key, cell in row.items()
        }
        for row in rows
    ]


def _page(story: JobStory, replay: str) -> StoredDocument:
    """The explanation of one job, without its tables. replay: what the replay is called."""
    return StoredDocument(
        name=f"job {story.job} of {replay}",
        kind="explanation",
        domain="cluster",
        version=VERSION,
        answer=story.why,
        notes=story.notes,
        facts={
            "wait in the replay_s": story.start_s - story.submit_s,
            "wait in history_s": story.history_s - story.submit_s,
            story.unit: story.gpus,
            "requested_s": story.request_s,
            "ran_s": story.run_s,
            "pool": story.pool,
            "policy": story.policy,
        },
        tables={},
        provenance={"replay": replay},
    )


DOCUMENT: Final = ReplayDocument()
