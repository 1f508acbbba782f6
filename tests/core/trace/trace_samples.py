"""One small valid file of every request format, to read, to break, and to mutate."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Sample:
    """A valid file of a format.

    number, whole: (column position, header) of a cell that holds a number, a whole number; None if there is
    none. sorted_by: column position of the sort key, None if rows may come in any order. unique: a column
    whose values occur once. usual_crlf: CRLF is the format's own.
    """

    format: str
    name: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    number: tuple[int, str]
    whole: tuple[int, str] | None = None
    text: tuple[int, str] | None = None
    sorted_by: int | None = None
    unique: tuple[int, str] | None = None
    usual_crlf: bool = False
    options: dict[str, object] = field(default_factory=dict)

    def data(self, header=None, rows=None) -> bytes:
        """The file's bytes, with another header or other rows where given."""
        lines = [self.header if header is None else header] if self.header else []
        lines += self.rows if rows is None else rows
        return "".join(",".join(cells) + "\n" for cells in lines).encode()

    def with_cell(self, row: int, column: int, text: str) -> bytes:
        """The file with one cell changed."""
        rows = [list(cells) for cells in self.rows]
        rows[row][column] = text
        return self.data(rows=rows)

    @property
    def first_line(self) -> int:
        """Line number of the first row."""
        return 2 if self.header else 1


MINUTES = tuple(str(i) for i in range(1, 1441))


def _counts(*placed: tuple[int, int]) -> tuple[str, ...]:
    counts = ["0"] * 1440
    for minute, count in placed:
        counts[minute - 1] = str(count)
    return tuple(counts)


CSV_SAMPLES = (
    Sample("deltas", "gaps.deltas", (), (("0.047",), ("69.5",), ("0.047",), ("13.25",)), number=(0, "gap")),
    Sample(
        "intervals",
        "intervals.txt",
        (),
        (("47",), ("69500",), ("47",)),
        number=(0, "gap"),
        options={"unit": "us"},
    ),
    Sample(
        "azure_functions_2019",
        "invocations.csv",
        ("HashOwner", "HashApp", "HashFunction", "Trigger", *MINUTES),
        (
            ("o", "a", "f1", "http", *_counts((3, 4), (4, 1))),
            ("o", "a", "f2", "timer", *_counts((1, 2))),
            ("o", "b", "f3", "queue", *_counts((9, 7))),
        ),
        number=(6, "3"),
        whole=(6, "3"),
        text=(2, "HashFunction"),
        unique=(2, "HashFunction"),
    ),
    Sample(
        "azure_functions_2021",
        "functions.csv",
        ("app", "func", "end_timestamp", "duration"),
        (("a", "f", "10.5", "0.25"), ("a", "g", "10.5", "4.0"), ("b", "f", "11.0", "0.0")),
        number=(2, "end_timestamp"),
        text=(0, "app"),
    ),
    Sample(
        "azure_llm",
        "llm.csv",
        ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
        (
            ("2023-11-16 18:17:03.9799600", "4808", "10"),
            ("2023-11-16 18:17:04.0319600", "3180", "8"),
            ("2023-11-16 18:17:05.0319601", "110", "27"),
        ),
        number=(1, "ContextTokens"),
        whole=(1, "ContextTokens"),
        sorted_by=0,
        usual_crlf=True,
    ),
    Sample(
        "burstgpt",
        "burst.csv",
        (
            "Timestamp",
            "Session ID",
            "Elapsed time",
            "Model",
            "Request tokens",
            "Response tokens",
            "Total tokens",
            "Log Type",
        ),
        (
            ("5", "s1", "3.2", "ChatGPT", "472", "18", "490", "Conversation log"),
            ("45", "", "0.9", "GPT-4", "10", "25", "35", "API log"),
            ("118", "", "", "ChatGPT", "1087", "0", "1087", "API log"),
        ),
        number=(0, "Timestamp"),
        whole=(4, "Request tokens"),
        text=(3, "Model"),
        sorted_by=0,
    ),
    Sample(
        "vidur",
        "vidur.csv",
        ("arrived_at", "num_prefill_tokens", "num_decode_tokens"),
        (("0.0", "374", "44"), ("4.314579", "396", "109"), ("7.5", "1", "1")),
        number=(0, "arrived_at"),
        whole=(1, "num_prefill_tokens"),
        sorted_by=0,
    ),
    Sample(
        "splitwise",
        "splitwise.csv",
        (
            "request_id",
            "request_type",
            "application_id",
            "arrival_timestamp",
            "batch_size",
            "prompt_size",
            "token_size",
        ),
        (
            ("0", "2", "0", "0.0", "1", "374", "44"),
            ("1", "2", "0", "4.5", "1", "396", "109"),
            ("2", "2", "0", "5.5", "1", "3", "1"),
        ),
        number=(3, "arrival_timestamp"),
        whole=(5, "prompt_size"),
        sorted_by=3,
        unique=(0, "request_id"),
    ),
    Sample(
        "csv",
        "plain.csv",
        ("id", "arrival_s", "prompt_tokens", "source>ResNet"),
        (("a", "0.5", "7", "1"), ("b", "1.5", "8", "0"), ("c", "2.5", "9", "1")),
        number=(1, "arrival_s"),
        whole=(2, "prompt_tokens"),
        text=(0, "id"),
        sorted_by=1,
        unique=(0, "id"),
    ),
)

MOONCAKE = (
    b'{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2]}\n'
    b'{"timestamp": 27, "input_length": 7322, "output_length": 490, "hash_ids": [0, 3]}\n'
    b'{"timestamp": 3000, "input_length": 12, "output_length": 1, "hash_ids": []}\n'
)
