"""Language-model servers measured: what is sent, what is made of what comes back, and the simulation of it beside.

No test here says how long something takes: instants of the client are compared with those of the server, which are before
or behind them by cause and effect, and counts with counts.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forerun.report
from forerun.cli.main import run as command_line
from forerun.documents import StoredDocument
from forerun.domains.serving.calibration.experiment import Experiment, Load
from forerun.domains.serving.calibration.readers import read_measurements
from forerun.domains.serving.engine.llm.stage import LanguageStage
from forerun.domains.serving.inputs.llm.model import Cost, LanguageModel, Prefixes
from forerun.errors import UsageError
from forerun.measure.llm.exchange import Address, Connection, Failure, Seen, Usage, post
from forerun.measure.llm.prompts import WORDS, Prompts
from forerun.measure.llm.replaying import Answered, Replayed, replay_load
from forerun.measure.llm.results import Answers, compared
from forerun.measure.llm.study import Traffic
from forerun.measure.llm.trial import Server, tried
from forerun.measure.progress import Steps
from forerun.report.stored import figures_of_document, open_stored

from .llm_server import LawfulServer, Served, Writer, chunk, event

TRACE = "arrival_ms,prompt_tokens,output_tokens\n0,30,5\n3,41,7\n3,12,1\n9,200,12\n20,25,3\n21,60,9\n"


def traced(folder: Path, text: str = TRACE) -> Path:
    path = folder / "requests.csv"
    path.write_text(text)
    return path


def load(n: int, most: int | None = None, gap_ms: float = 2.0) -> Load:
    rng = np.random.default_rng(n)
    return Load(np.arange(n) * gap_ms, rng.integers(10, 60, n), rng.integers(9, 20, n), most)


def sent(server: LawfulServer, of: Load, **how: Any) -> tuple[Replayed, Answers]:
    """A load sent to a server that is running."""
    asked = Server(Address.of(server.url, remote=False), "", how.pop("chat", False), "", 60.0, {})
    known = tried(server.url, asked, Prompts(7, **how), int(of.prompt.max()))
    into = Replayed()
    replay_load(known.server, known.prompts, of, Steps(lambda _: None, [0.0]), into)
    return into, Answers.of(of, into.answers, counts=known.counts)


class TestWhatIsSent:
    def test_an_open_loop_sends_all_before_any_is_answered(self) -> None:
        """The server answers nobody until all have come: a client that waited for answers would never end."""
        with LawfulServer(gate=30).running() as server:
            came, answers = sent(server, load(30))
        assert len(answers) == 30 and not came.stopped

    @pytest.mark.parametrize("most", [1, 3])
    def test_no_more_are_under_way_than_the_limit(self, most: int) -> None:
        """The server answers from as many as the limit on, and never sees more, though all are due at once."""
        under_way: list[int] = []

        def count(served: Served, _: Writer) -> bool:
            now = time.monotonic()
            open_now = [one for one in server.loaded if one.closed_s > now and one is not served]
            # One that has all its tokens may still hang up.
            under_way.append(sum(len(one.iterations) < one.body["max_tokens"] for one in open_now) + 1)
            return False

        with LawfulServer(seats=8, gate=most, misbehave=count).running() as server:
            _, answers = sent(server, load(20, most, gap_ms=0.0))
        assert len(answers) == 20 and max(under_way) == most
        assert server.most_at_once == most

    def test_requests_say_what_the_load_says(self) -> None:
        of = load(12)
        with LawfulServer(base=5).running() as server:
            _, answers = sent(server, of)
        by_number = sorted(server.loaded, key=lambda one: one.received_s)
        assert sorted(one.body["max_tokens"] for one in by_number) == sorted(of.output.tolist())
        assert all(one.body["stream"] and one.body["ignore_eos"] for one in by_number)
        assert all(one.body["stream_options"] == {"include_usage": True} for one in by_number)
        # Words and what every prompt has besides were learned from two trials: lengths come out exactly.
        assert np.array_equal(answers.prompt, of.prompt[answers.number])
        assert np.array_equal(answers.output, of.output[answers.number])

    def test_chats_and_numbers_of_tokens(self) -> None:
        of = load(5)
        with LawfulServer(base=9).running() as server:
            _, chats = sent(server, of, chat=True)
            _, numbers = sent(server, of, ids=(100, 999))
        for answers in (chats, numbers):
            assert np.array_equal(answers.prompt, of.prompt[answers.number]) and answers.token_by_token
        assert {one.path for one in server.log} == {"/v1/completions", "/v1/chat/completions"}
        sent_ids = [one.body["prompt"] for one in server.loaded if isinstance(one.body.get("prompt"), list)]
        assert len(sent_ids) == 5 and all(100 <= number <= 999 for one in sent_ids for number in one)

    def test_a_request_is_never_sent_twice(self) -> None:
        def hang_up(served: Served, writer: Writer) -> bool:
            if served.body["max_tokens"] == 8:
                return False
            writer.close()
            return True

        with LawfulServer(misbehave=hang_up).running() as server:
            came, _ = sent(server, load(6))
        assert len(server.loaded) == 6 and all(
            "closed" in one.why or "lost" in one.why for one in came.answers
        )

    def test_a_server_that_knows_fewer_fields_is_asked_without_them(self) -> None:
        with LawfulServer(strict=True, most_tokens=4).running() as server:
            _, answers = sent(server, load(4))
        assert len(answers) == 4 and (answers.output == 4).all()
        assert all("ignore_eos" not in one.body for one in server.loaded)


class TestWhatIsMeasured:
    def test_times_enclose_those_of_the_server(self) -> None:
        """A request is sent before it comes, a token comes behind its writing, and the client hangs up behind its last."""
        of = load(40)
        with LawfulServer(seats=6).running() as server:
            _, answers = sent(server, of)
        by_text = {(one.text, one.body["max_tokens"]): one for one in server.loaded}
        prompts = Prompts(7)
        assert len(by_text) == len(answers) == 40
        for row, number in enumerate(answers.number.tolist()):
            tokens = (int(of.prompt[number]), int(of.output[number]))
            own = by_text[str(prompts.of(number, tokens[0])), tokens[1]]
            ttft_s = (answers.first_ms[row] - answers.sent_ms[row]) / 1e3
            e2e_s = (answers.last_ms[row] - answers.sent_ms[row]) / 1e3
            assert ttft_s >= own.written_s[0] - own.received_s
            assert e2e_s >= own.written_s[-1] - own.received_s
            assert e2e_s - ttft_s <= own.closed_s - own.written_s[0]
            gaps = answers.gaps_ms[row]
            assert len(gaps) == len(own.written_s) - 1 == tokens[1] - 1
            assert gaps.sum() == pytest.approx(1e3 * (e2e_s - ttft_s))
            # Continuous batching: its tokens are of consecutive iterations, whoever else came or left.
            assert own.iterations == list(range(own.iterations[0], own.iterations[0] + tokens[1]))
        assert (answers.lag_ms >= -1e-6).all(), "nothing is sent before it is due"

    def test_pieces_of_several_tokens_are_no_tokens(self) -> None:
        with LawfulServer(pieces=3).running() as server:
            _, answers = sent(server, load(6))
        assert not answers.token_by_token and "itl" not in answers.times_ms(np.arange(6))
        assert np.array_equal(answers.pieces, -(-answers.output // 3))

    def test_a_server_that_does_not_count(self) -> None:
        of = load(6)
        with LawfulServer(counts=False, base=50).running() as server:
            _, answers = sent(server, of)
        assert np.array_equal(answers.prompt, of.prompt[answers.number])
        assert np.array_equal(answers.output, answers.pieces)

    def test_figures_by_hand(self) -> None:
        of = Load(np.array([0.0, 10.0, 20.0]), np.array([5, 6, 7]), np.array([3, 1, 2]))
        came = [
            Answered(1, 12.0, np.array([30.0]), Usage(60, 1)),
            Answered(0, 1.0, np.array([11.0, 15.0, 21.0]), Usage(50, 3, {"cached_tokens": 48})),
            Answered(2, math.nan, np.empty(0), None, "no connection"),
        ]
        answers = Answers.of(of, came, counts=True)
        times = answers.times_ms(np.arange(2))
        assert times["ttft"].tolist() == [10.0, 18.0] and times["e2e"].tolist() == [20.0, 18.0]
        assert times["tpot"].tolist() == [5.0] and times["itl"].tolist() == [4.0, 6.0]
        assert answers.prompt.tolist() == [50, 60] and answers.cached.tolist() == [48, 0]
        assert answers.lag_ms.tolist() == [1.0, 2.0] and answers.number.tolist() == [0, 1]
        assert answers.throughput_rps == pytest.approx(2e3 / 29)


COST = Cost((9.0, 0.045, 0.03, 3e-5, 6e-7), request_ms=4.0)


def simulated(of: Load, shared: Prefixes | None = None) -> tuple[LanguageModel, list[Answered]]:
    """What a client would see of a server that is exactly the model, its tokens evenly from the first to the last."""
    llm = LanguageModel(8, 256, 400, 16, COST, of.prompt, of.output, shared=shared)
    stage = LanguageStage(llm, 2, keep=False)
    if of.most_in_flight is None:
        stage.feed(np.arange(len(of)), of.send_ms, np.ones(len(of), dtype=np.bool_))
        stage.advance(np.inf)
    else:
        stage.run_held_back(of.send_ms, of.most_in_flight)
    visits, _, requests = stage.record(len(of))
    came = []
    for number in range(len(of)):
        first_ms, end_ms = float(requests.first_ms[number]), float(visits.end_ms[number])
        tokens = np.linspace(first_ms, end_ms, int(of.output[number]))
        usage = Usage(int(of.prompt[number]), int(of.output[number]))
        came.append(Answered(number, float(visits.enqueue_ms[number]), tokens, usage))
    return llm, came


class TestTheSimulationBeside:
    @pytest.mark.parametrize("most", [None, 5])
    def test_a_server_that_is_the_model_is_predicted_exactly(self, most: int | None) -> None:
        of = replace(load(80, gap_ms=25.0), most_in_flight=most)
        llm, came = simulated(of)
        rows = compared(Answers.of(of, came, counts=True), llm, 2, most, seed=1)
        errors = {row["figure"]: row["error"] for row in rows}
        assert set(errors) == {
            f"{kind}_{share}" for kind in ("ttft", "tpot", "itl", "e2e") for share in ("p50", "p99")
        }
        for name in ("ttft_p50", "ttft_p99", "tpot_p50", "tpot_p99", "e2e_p50", "e2e_p99"):
            assert errors[name] == pytest.approx(0, abs=1e-9), name
        assert all(
            row["error_low"] <= row["error"] + 1e-9 and row["error_high"] >= row["error"] - 1e-9
            for row in rows
        )

    @pytest.mark.parametrize("most", [1, 3, 16])
    def test_a_limit_is_found_again_in_the_table(self, most: int, tmp_path: Path) -> None:
        """A client that sends as soon as another request ends: rounded instants must not make it look like one more."""
        of = replace(load(80, most), send_ms=np.zeros(80))
        _, came = simulated(of)
        answers = Answers.of(of, came, counts=True)
        answers.write(tmp_path / "requests.csv")
        (found,) = read_measurements(tmp_path / "requests.csv")
        assert isinstance(found, Experiment) and found.load.most_in_flight == most

    def test_only_what_was_answered_is_simulated_and_prefixes_follow(self) -> None:
        of = load(40, gap_ms=400.0)
        shared = Prefixes.of([[n % 3] for n in range(40)])
        llm, came = simulated(of, shared)
        lost = [replace(one, why="lost") if one.number % 4 == 0 else one for one in came]
        rows = compared(Answers.of(of, lost, counts=True), llm, 2, None, seed=1)
        # So far apart that nobody waits for another: those that are left out change nothing but what the cache had.
        by_name = {row["figure"]: row for row in rows}
        assert by_name["tpot_p50"]["error"] == pytest.approx(0, abs=1e-9)
        plain = compared(Answers.of(of, lost, counts=True), replace(llm, shared=None), 2, None, seed=1)
        assert {row["figure"]: row for row in plain}["ttft_p50"]["predicted_ms"] > by_name["ttft_p50"][
            "predicted_ms"
        ]

    def test_overload_is_said_to_saturate(self) -> None:
        """Just above what the replicas carry, iterations a little longer make the first token wait far longer."""
        of = Load(np.arange(600) * 15.5, np.full(600, 200), np.full(600, 20))
        llm, came = simulated(of)
        rows = {
            row["figure"]: row for row in compared(Answers.of(of, came, counts=True), llm, 2, None, seed=1)
        }
        light = Load(of.send_ms * 4, of.prompt, of.output)
        llm, came = simulated(light)
        calm = {
            row["figure"]: row for row in compared(Answers.of(light, came, counts=True), llm, 2, None, seed=1)
        }
        assert not any(row["saturating"] for row in calm.values())
        assert (
            rows["ttft_p99"]["measured_ms"] > 5 * calm["ttft_p99"]["measured_ms"]
            and rows["ttft_p99"]["saturating"]
            and rows["ttft_p99"]["error"] is None
        )


class TestPrompts:
    def test_prompts_that_share_prefixes_begin_alike_and_no_others(self) -> None:
        prefixes = Prefixes.of([[1, 2], [1, 3], [4], []], segment_blocks=1)
        prompts = Prompts(3, prefixes=prefixes, segments=np.array([2, 2, 1, 0]), segment_tokens=16)
        words = [str(prompts.of(n, 40)).split() for n in range(4)]
        assert all(len(own) == 40 and set(own) <= set(WORDS) for own in words)
        assert words[0][:16] == words[1][:16] and words[0][16:32] != words[1][16:32]
        assert words[0][:16] != words[2][:16] != words[3][:16]
        assert words == [str(prompts.of(n, 40)).split() for n in range(4)]
        alone = Prompts(3)
        assert len({str(alone.of(n, 30))[:40] for n in range(50)}) == 50

    def test_lengths_follow_what_was_learned(self) -> None:
        prompts = Prompts(3, base=20.0, per_unit=1.25)
        assert len(str(prompts.of(0, 145)).split()) == 100
        assert len(str(prompts.of(0, 3)).split()) == 1, "no prompt is empty"


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
WORD = b'data: {"choices": [{"text": "a", "finish_reason": null}]}\n\n'
END = b'data: {"choices": [{"text": "b", "finish_reason": "length"}]}\n\n'


def asked(answer: bytes, *, stall: bool = False, wait_s: float = 30.0) -> Seen:
    """What a client makes of an answer, byte for byte; the server hangs up behind it, or does nothing more."""

    async def main() -> Seen:
        over = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            if stall:
                await over.wait()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        address = Address("127.0.0.1", server.sockets[0].getsockname()[1], "", False)
        connection, seen = await Connection.open(address, wait_s), Seen()
        try:
            await connection.ask(post(address, "/v1/completions", {}, ""), 4, seen)
        finally:
            connection.close()
            over.set()
            server.close()
        return seen

    return asyncio.run(main())


class TestAnswers:
    @pytest.mark.parametrize(
        "answer",
        [
            HEAD + WORD + END,
            HEAD + WORD + END + b"data: [DONE]\n\n",
            HEAD.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n")
            + b"".join(b"%x;x=y\r\n%s\r\n" % (len(part), part) for part in (WORD[:9], WORD[9:] + END[:5], END[5:]))
            + b"0\r\n\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + b": alive\r\n\r\n" + (WORD + END).replace(b"\n", b"\r\n"),
            HEAD.replace(b"\r\n\r\n", b"\r\nContent-Length: %d\r\n\r\n" % len(WORD + END)) + WORD + END + b"more",
            HEAD + WORD + END + b"data: what comes behind the end changes nothing\n\n",
        ],
    )  # fmt: skip
    def test_whole_ones(self, answer: bytes) -> None:
        seen = asked(answer)
        assert seen.finished and len(seen.token_s) == 2 and seen.token_s[0] >= seen.sent_s

    def test_one_that_says_that_it_is_whole_and_keeps_the_connection(self) -> None:
        assert asked(HEAD + WORD + END, stall=True, wait_s=0.2).finished

    @pytest.mark.parametrize(
        ("answer", "why"),
        [
            (b"", "closed the connection before"),
            (b"HTTP/1.1 200", "closed the connection before"),
            (b"SSH-2.0-x\r\n", "no HTTP: begins with 'SSH-2.0-x'"),
            (b"\x00\xff\r\n", "no HTTP"),
            (b"HTTP/1.1 abc\r\n\r\n", "no HTTP"),
            (b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere\r\nContent-Length: 0\r\n\r\n", "answers 302"),
            (b"HTTP/1.1 503 No\r\n\r\nout of\nmemory", "answers 503: out of memory"),
            (b'HTTP/1.1 400 No\r\n\r\n{"error": {"message": "too long"}}', "answers 400: too long"),
            (b'HTTP/1.1 422 No\r\n\r\n{"detail": [{"loc": "prompt"}]}', 'answers 422: [{"loc": "prompt"}]'),
            (b"HTTP/1.1 500 No\r\n\r\n" + b"[" * 100_000, "answers 500: [[["),
            (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{}", "answers application/json, not a stream"),
            (b"HTTP/1.1 200 OK\r\n\r\n", "answers nothing, not a stream"),
            (HEAD, "ended without a token"),
            (HEAD + END.replace(b"b", b""), "ended without a token"),
            (HEAD + WORD, "ended after 1 pieces"),
            (HEAD + WORD + b"data: {nonsense}\n\n", "no completion"),
            (HEAD + WORD + b"data: [1, 2]\n\n", "no completion"),
            (HEAD + WORD + b'data: {"choices": [{"text": "\xff\xfe"}]}\n\n', "no completion"),
            (HEAD + WORD + b'data: {"error": {"message": "lost a GPU", "code": 500}}\n\n', "while it answers: lost a GPU"),
            (HEAD + 73 * WORD, "does not end: 73 pieces came of 4 tokens"),
            (HEAD + WORD + b"data: " + b"x" * (3 << 20), "a line without end"),
            (HEAD[:-2] + b"X: y\r\n" * 300 + b"\r\n", "headers"),
            (HEAD[:-2] + b"X: " + b"y" * (3 << 20) + b"\r\n\r\n", "no HTTP"),
            (HEAD[:-2] + b"Content-Length: 9000\r\n\r\n" + WORD, "closed the connection before its answer was whole"),
            (HEAD[:-2] + b"Content-Length: many\r\n\r\n" + WORD, "no HTTP"),
            (HEAD[:-2] + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", "no HTTP"),
            (HEAD[:-2] + b"Transfer-Encoding: chunked\r\n\r\n-5\r\n", "no HTTP"),
            (HEAD[:-2] + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabcdefgh\r\n", "no HTTP"),
            (HEAD[:-2] + b"Transfer-Encoding: chunked\r\n\r\n50\r\nabc", "before its answer was whole"),
        ],
    )  # fmt: skip
    def test_others_fail_in_words(self, answer: bytes, why: str) -> None:
        with pytest.raises(Failure) as failure:
            asked(answer)
        assert why in failure.value.why and "\n" not in failure.value.why and len(failure.value.why) < 300

    @pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\n", HEAD, HEAD + WORD])
    def test_one_that_stalls_fails(self, answer: bytes) -> None:
        with pytest.raises(Failure, match=r"stalled: nothing came for 0\.2 s"):
            asked(answer, stall=True, wait_s=0.2)

    def test_how_bytes_are_cut_changes_nothing(self) -> None:
        """The same events in chunks of any lengths, which part lines and characters."""
        words = [*"añ→😀", "two words", "\\n"]
        events = [{"choices": [{"text": word}]} for word in words]
        events += [
            {"choices": [{"text": "", "finish_reason": "stop"}]},
            {"choices": [], "usage": {"prompt_tokens": 7}},
        ]
        stream = b"".join(
            b"data: " + json.dumps(one, ensure_ascii=False).encode() + b"\n\n" for one in events
        )
        head = HEAD[:-2] + b"Transfer-Encoding: chunked\r\n\r\n"
        rng = np.random.default_rng(3)
        for _ in range(40):
            ends = np.sort(rng.choice(len(stream), size=int(rng.integers(0, 60)), replace=False)).tolist()
            parts = [stream[a:b] for a, b in zip([0, *ends], [*ends, len(stream)]) if b > a]
            body = b"".join(b"%X\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
            seen = asked(head + body)
            assert len(seen.token_s) == len(words) and seen.usage == Usage(prompt_tokens=7)

    def test_broken_answers_fail_in_words_or_are_whole(self) -> None:
        """Bytes lost, doubled, flipped and cut at random: nothing but a failure or an answer that says that it is whole."""
        chunked = HEAD[:-2] + b"Transfer-Encoding: chunked\r\n\r\n"
        chunked += b"".join(
            b"%x\r\n%s\r\n" % (len(part), part) for part in (WORD, WORD, END, b"data: [DONE]\n\n", b"")
        )
        rng, whole = np.random.default_rng(5), 0
        for _ in range(300):
            answer = bytearray(HEAD + WORD + WORD + END if rng.random() < 0.5 else chunked)
            for _ in range(int(rng.integers(1, 4))):
                at, length = int(rng.integers(len(answer))), int(rng.integers(1, 9))
                match int(rng.integers(4)):
                    case 0:
                        del answer[at : at + length]
                    case 1:
                        answer[at:at] = answer[at : at + length]
                    case 2:
                        answer[at] ^= 1 << int(rng.integers(8))
                    case _:
                        del answer[max(at, 1) :]
                answer = answer or bytearray(b"\n")
            try:
                seen = asked(bytes(answer), wait_s=5.0)
            except Failure as failure:
                assert failure.why and "\n" not in failure.why
            else:
                whole += 1
                assert seen.finished and seen.token_s
        assert 0 < whole < 300

    def test_a_sign_of_life_is_no_token(self) -> None:
        """Lines that keep a connection alive give no more time."""

        async def main() -> None:
            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(HEAD)
                try:
                    while True:
                        writer.write(b": still here\n\n")
                        await writer.drain()
                        await asyncio.sleep(0.01)
                except ConnectionError:
                    writer.close()

            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            address = Address("127.0.0.1", server.sockets[0].getsockname()[1], "", False)
            connection = await Connection.open(address, 0.3)
            with pytest.raises(Failure, match="stalled"):
                await connection.ask(post(address, "/", {}, ""), 4, Seen())
            connection.close()
            server.close()

        asyncio.run(main())


class TestAddresses:
    @pytest.mark.parametrize(
        "url", ["http://127.0.0.1:8000", "http://localhost:8000/v1/", "http://[::1]:8000/v1"]
    )
    def test_this_machine(self, url: str) -> None:
        address = Address.of(url, remote=False)
        assert (address.port, address.path, address.secure, address.here) == (8000, "", False, True)

    def test_a_path_and_a_port_of_its_own(self) -> None:
        address = Address.of("https://example.org/models/v1", remote=True)
        assert (address.port, address.path, address.secure, address.here) == (443, "/models", True, False)
        assert b"POST /models/v1/completions HTTP/1.1\r\nHost: example.org:443\r\n" in post(
            address, "/v1/completions", {}, ""
        )

    @pytest.mark.parametrize(
        ("url", "what"),
        [
            ("http://example.org:8000", "--remote"),
            ("http://127.0.0.1.example.org", "--remote"),
            ("http://0.0.0.0:1", "--remote"),
            ("ftp://127.0.0.1", "give the URL of a server"),
            ("127.0.0.1:8000", "give the URL of a server"),
            ("http://", "give the URL of a server"),
            ("http://127.0.0.1:99999", "range"),
            ("http://me:secret@127.0.0.1", "--token-file"),
            ("http://127.0.0.1/?key=secret", "--token-file"),
            ("http://127.0.0.1/\r\nX: y", "no URL"),
            ("http://[::1", "Invalid"),
        ],
    )
    def test_others_are_rejected(self, url: str, what: str) -> None:
        with pytest.raises(UsageError, match=what) as error:
            Address.of(url, remote=False)
        assert "secret" not in str(error.value)


SCENARIO: dict[str, Any] = {
    "domain": "serving",
    "seed": 4,
    "trace": {"process": {"name": "poisson", "rate_rps": 20.0}, "queries": 30},
    "stages": [{"name": "Chat", "parents": ["source"]}],
    "configuration": {
        "Chat": {
            "hardware": "H100",
            "llm": {
                "max_seqs": 4,
                "token_budget": 256,
                "kv_blocks": 400,
                "cost": {"a_ms": 2.0, "prefill_ms_per_token": 0.001},
                "tokens": {"prompt": 40, "output": 9},
                "e2e_slo_ms": 1000.0,
            },
        }
    },
    "prices_usd_per_h": {"H100": 4.0},
    "intervals": {"replications": 0},
}


def described(folder: Path, **changes: Any) -> Path:
    path = folder / "chat.json"
    path.write_text(json.dumps({**SCENARIO, **changes}))
    return path


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = command_line(["measure", "llm", *map(str, words)])
    return code, *capsys.readouterr()


class TestTheCommand:
    def test_a_scenario_measured_simulated_saved_and_fitted(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with LawfulServer(step_s=0.002).running() as server:
            path, out = described(tmp_path), tmp_path / "out"
            code, said, told = run(capsys, server.url, "--scenario", path, "-o", out)
        assert code == 0, told
        assert "30 requests over" in told and "answer: 30 requests were answered" in said
        measured = json.loads((out / "measured.json").read_text())
        assert measured["answered"] == 30 and measured["failed"] == 0 and not measured["failures"]
        assert {row["figure"] for row in measured["compared"]} >= {
            "ttft_p50",
            "ttft_p99",
            "itl_p50",
            "e2e_p99",
        }
        (found,) = read_measurements(out / "requests.csv")
        assert isinstance(found, Experiment)
        for row in measured["latencies"]:
            if row["time"] != "itl":
                for share in ("mean", "p50", "p99"):
                    assert found.measured[f"{row['time']}_{share}_ms"] == pytest.approx(
                        row[f"{share}_ms"], abs=2e-3
                    )
        assert found.load.prompt.tolist() == [40] * 30 and found.load.output.tolist() == [9] * 30
        stored = open_stored(out / "measured.json")
        assert isinstance(stored, StoredDocument) and stored.answer == measured["answer"]
        (figure,) = figures_of_document(stored)
        assert figure.equal and len(figure.data["measured_ms"]) == sum(
            row["predicted_ms"] is not None for row in measured["compared"]
        )
        server_file = tmp_path / "server.yaml"
        server_file.write_text("{max_seqs: 4, token_budget: 256, kv_blocks: 400}")
        cost = tmp_path / "cost.yaml"
        assert command_line(["fit", str(server_file), str(out / "requests.csv"), "-o", str(cost)]) == 0
        capsys.readouterr()
        with LawfulServer(step_s=0.002).running() as server:
            fitted = ("--set", f"configuration.Chat.llm.cost={cost}")
            code, said, _ = run(capsys, server.url, "--scenario", path, *fitted, "--json", "--requests", 20)
        again = tmp_path / "again.json"
        again.write_text(said)
        (figure,) = figures_of_document(open_stored(again))  # type: ignore[arg-type]
        assert {"low", "high"} <= figure.data.keys()
        forerun.report.write_page([open_stored(again)], tmp_path / "page.html")
        rows = json.loads(said)["compared"]
        assert code == 0 and all(
            row["low_ms"] <= (row["predicted_ms"] or row["low_ms"]) <= row["high_ms"] for row in rows
        )

    def test_a_trace_stretched_cut_and_held_back(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with LawfulServer(cached=3).running() as server:
            words = (
                "--trace",
                traced(tmp_path),
                "--requests",
                5,
                "--rate",
                "100rps",
                "--in-flight",
                2,
                "--json",
            )
            code, said, _ = run(capsys, server.url, *words)
        measured = json.loads(said)
        assert code == 0 and measured["requests"] == 5 and measured["most_in_flight"] == 2
        assert measured["offered_rps"] == pytest.approx(100.0) and measured["compared"] == []
        assert any("prefix cache had" in note for note in measured["notes"])
        assert server.most_at_once <= 2

    def test_what_fails_is_counted_and_the_rest_is_kept(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def misbehave(served: Served, writer: Writer) -> bool:
            match served.body["max_tokens"]:
                case 7:
                    writer.write(b"HTTP/1.1 500 No\r\nContent-Length: 13\r\n\r\n=out of order")
                case 12:
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n")
                    writer.write(b"Transfer-Encoding: chunked\r\n\r\n")
                    event(writer, {"choices": [{"text": "a"}]})
                    chunk(writer, b"data: {oh\n\n")
                case _:
                    return False
            return True

        with LawfulServer(misbehave=misbehave).running() as server:
            out = tmp_path / "out"
            code, said, _ = run(capsys, server.url, "--trace", traced(tmp_path), "-o", out, "-q")
        assert code == 0 and "4 requests were answered" in said and "2 failed" in said
        failed = (out / "failed.csv").read_text().splitlines()
        assert failed[0] == "arrival_ms,send_ms,prompt_tokens,output_tokens,pieces,why" and len(failed) == 3
        assert (
            failed[1].endswith(",41,7,0,answers 500: =out of order")
            and ",200,12,1,sends what is" in failed[2]
        )
        assert len((out / "requests.csv").read_text().splitlines()) == 5

    def test_a_server_that_goes_away(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """It answers two, then its socket is closed: what was measured is kept, the rest is not sent one by one."""
        rows = "".join(f"{50 * n},20,9\n" for n in range(400))
        path, out = traced(tmp_path, "arrival_ms,prompt_tokens,output_tokens\n" + rows), tmp_path / "out"
        server = LawfulServer()

        def leave(served: Served, _: Writer) -> bool:
            if len(server.loaded) == 3:
                server.leave()
            return False

        server.misbehave = leave
        with server.running():
            code, _, told = run(capsys, server.url, "--trace", path, "-o", out)
        assert code == 2 and "connections in a row failed" in told.splitlines()[-1]
        measured = json.loads((out / "measured.json").read_text())
        assert measured["answered"] >= 2 and measured["answered"] + measured["failed"] < 400

    @pytest.mark.parametrize(
        ("trace", "words", "what"),
        [
            ("arrival_ms,prompt_tokens,output_tokens\n0,5,0\n", (), "have 0 output_tokens"),
            ("arrival_ms\n0\n1\n", (), "has no column prompt_tokens or output_tokens"),
            (
                "arrival_ms,prompt_tokens,output_tokens\n0,5,5\n0,6,6\n",
                ("--rate", "2rps"),
                "no gaps to stretch",
            ),
            (TRACE, ("--rate", "2"), "has no unit"),
            (TRACE, ("--rate", "0rps"), "is not above 0"),
            (TRACE, ("--timeout", "soon"), "not a quantity"),
            (TRACE, ("--token-ids", "9-3"), "no range"),
            (TRACE, ("--token-ids", "1-9", "--chat"), "take words"),
            (TRACE, ("--set", "seed=1"), "none was given"),
            (TRACE, ("--token-env", "NOT_SET_ANYWHERE"), "is not set"),
            (TRACE, ("--token-file", "nowhere"), "cannot be read"),
            (TRACE, (), "no server answers: no connection: Connection refused"),
        ],
    )
    def test_what_cannot_be_measured_is_one_line(
        self,
        trace: str,
        words: tuple[str, ...],
        what: str,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        url = "http://127.0.0.1:1"
        code, said, told = run(
            capsys, url, "--trace", traced(tmp_path, trace), *words, "-o", tmp_path / "out"
        )
        assert code == 2 and not said and what in told and len(told.splitlines()) == 1, told
        assert not list((tmp_path / "out").glob("*"))

    @pytest.mark.parametrize(
        ("changes", "what"),
        [
            (
                {"stages": [*SCENARIO["stages"], {"name": "KSVM", "parents": ["Chat"]}],
                 "configuration": {**SCENARIO["configuration"], "KSVM": {"hardware": "cpu"}}},
                "a server is one stage",
            ),
            ({"tuner": {"name": "attainment", "max_replicas": 3, "target": 0.9}}, "keeps its replicas"),
        ],
    )  # fmt: skip
    def test_scenarios_that_are_no_server(
        self, changes: dict[str, Any], what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        code, _, told = run(capsys, "http://127.0.0.1:1", "--scenario", described(tmp_path, **changes))
        assert code == 2 and what in told and "Traceback" not in told, told

    def test_models_that_are_not_served(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = traced(tmp_path)
        with LawfulServer(models=("tiny", "small")).running() as server:
            code, _, told = run(capsys, server.url, "--trace", path)
            assert code == 2 and "serves 2 models: name one with --model; known: small, tiny" in told
            code, _, told = run(capsys, server.url, "--trace", path, "--model", "tinny")
            assert code == 2 and "answers 404: the model tinny does not exist; did you mean 'tiny'?" in told
            code, _, _ = run(capsys, server.url, "--trace", path, "--model", "small", "-q")
        assert code == 0 and {one.body["model"] for one in server.loaded} == {"small"}

    def test_every_request_failing_is_an_error_with_the_files_kept(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def busy(served: Served, writer: Writer) -> bool:
            if served.body["max_tokens"] == 8:
                return False
            writer.write(b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy")
            return True

        with LawfulServer(misbehave=busy).running() as server:
            out = tmp_path / "out"
            code, _, told = run(capsys, server.url, "--trace", traced(tmp_path), "-o", out, "-q")
        assert code == 2 and told.strip().endswith("all 6 requests failed, most often: answers 503: busy")
        assert len((out / "failed.csv").read_text().splitlines()) == 7

    def test_the_token_is_sent_and_never_shown(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        secret = tmp_path / "token"
        secret.write_text("s3cret-in-file\n")
        monkeypatch.setenv("SOME_TOKEN", "s3cret-in-env")
        path, out = traced(tmp_path), tmp_path / "out"
        with LawfulServer().running() as server:
            for words in (("--token-file", secret), ("--token-env", "SOME_TOKEN")):
                code, said, told = run(capsys, server.url, "--trace", path, "-o", out, *words)
                assert code == 0 and "s3cret" not in said + told
                assert not any("s3cret" in file.read_text() for file in out.iterdir())
        tokens = {one.headers["authorization"] for one in server.log}
        assert tokens == {"Bearer s3cret-in-file", "Bearer s3cret-in-env"}
        code, _, told = run(capsys, "http://example.org", "--remote", "--trace", path, "--token-file", secret)
        assert code == 2 and "readable on its way" in told

    def test_tls_to_a_server_that_speaks_none(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with LawfulServer().running() as server:
            url = server.url.replace("http://", "https://")
            code, said, told = run(capsys, url, "--trace", traced(tmp_path), "--timeout", "0.5s")
        assert (
            code == 2
            and not said
            and "no server answers: no connection within" in told
            and len(told.splitlines()) == 1
        )

    def test_both_or_neither_source(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        for words in ((), ("--scenario", described(tmp_path), "--trace", traced(tmp_path))):
            code, _, told = run(capsys, "http://127.0.0.1:1", *words)
            assert code == 2 and "exactly one of --scenario and --trace" in told

    def test_a_folder_that_cannot_be_is_said_before_anything_is_sent(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path, file = traced(tmp_path), tmp_path / "file"
        file.write_text("mine")
        with LawfulServer().running() as server:
            for out in (file, file / "below"):
                code, _, told = run(capsys, server.url, "--trace", path, "-o", out)
                assert code == 2 and "cannot be made" in told
            foreign = tmp_path / "foreign"
            foreign.mkdir()
            (foreign / "requests.csv").write_text("theirs")
            code, _, told = run(capsys, server.url, "--trace", path, "-o", foreign)
            assert code == 2 and "requests.csv: exists and is not of this program" in told
        assert (
            not server.log
            and file.read_text() == "mine"
            and (foreign / "requests.csv").read_text() == "theirs"
        )

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_one_that_is_stopped_keeps_what_it_has(self, number: int, tmp_path: Path) -> None:
        rows = "".join(f"{20 * n},20,9\n" for n in range(100_000))
        path, out = traced(tmp_path, "arrival_ms,prompt_tokens,output_tokens\n" + rows), tmp_path / "out"
        with LawfulServer().running() as server:
            words = ("measure", "llm", server.url, "--trace", str(path), "-o", str(out))
            command = [sys.executable, "-m", "forerun", *words]
            process = subprocess.Popen(
                command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
            while len(server.loaded) < 20:
                assert process.poll() is None
                time.sleep(0.01)
            # Ctrl-C reaches the whole group of a terminal, a request to end the process alone.
            (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
            _, err = process.communicate(timeout=60)
        assert process.returncode == 130 and b"Traceback" not in err, err.decode()
        assert b"forerun: interrupted after" in err and b"what was measured is saved to" in err
        answered = len((out / "requests.csv").read_text().splitlines()) - 1
        assert answered == json.loads((out / "measured.json").read_text())["answered"] > 0


def test_traffic_of_a_scenario_is_what_is_simulated(tmp_path: Path) -> None:
    traffic = Traffic.of_scenario(forerun.load(described(tmp_path))).limited(10, 50.0, 3)
    assert traffic.llm is not None and np.array_equal(traffic.llm.prompt, traffic.load.prompt)
    assert len(traffic.load) == 10 and traffic.load.rate_rps == pytest.approx(50.0)
    assert traffic.load.most_in_flight == 3 and traffic.seed == 4
