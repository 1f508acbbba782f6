"""The control socket: requests in frames, answers in frames, and nobody else's requests."""

from __future__ import annotations

import socket
import stat
import threading
from pathlib import Path

import pytest

from forerun.core.errors import UsageError
from forerun.live import service
from forerun.live.inbox import Inbox
from forerun.live.service import Cancel, Client, DrainNode, GetStatus, Reply, Request, Service, Stop, Submit
from forerun.live.spec import JobSpec
from forerun.live.status import JobStatus, RunStatus
from forerun.live.wire import MAX_BYTES, Decoder, encode

SPEC = JobSpec(name="a", command=("true",), iterations=3, slots=2, deadline_s=5.0)


def echo(request: Request) -> Reply:
    return Reply(said=repr(request))


@pytest.mark.parametrize(
    "request_", [Submit(spec=SPEC), Cancel(job="a"), DrainNode(node="n"), Stop(), GetStatus()], ids=repr
)
def test_a_request_arrives_as_it_was_sent(request_: Request, tmp_path: Path) -> None:
    with Service(tmp_path, echo):
        assert Client(tmp_path).ask(request_).said == repr(request_)


def test_only_the_owner_can_open_the_socket(tmp_path: Path) -> None:
    with Service(tmp_path, echo):
        assert stat.S_IMODE((tmp_path / service.SOCKET).stat().st_mode) == 0o600
    assert not (tmp_path / service.SOCKET).exists()


def test_another_user_is_turned_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Request] = []

    def answer(request: Request) -> Reply:
        asked.append(request)
        return Reply()

    monkeypatch.setattr(service, "is_of_this_user", lambda connection: False)
    with Service(tmp_path, answer), pytest.raises(UsageError, match="another user"):
        Client(tmp_path).ask(Stop())
    assert asked == []


def connected(folder: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(60)
    connection.connect(str(folder / service.SOCKET))
    return connection


def read_all(connection: socket.socket) -> list[Reply]:
    decoder: Decoder[Reply] = Decoder(Reply)
    answers: list[Reply] = []
    while data := connection.recv(1 << 16):
        answers += decoder.feed(data)
    return answers


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 20])
def test_two_requests_in_pieces_get_two_answers(cut: int, tmp_path: Path) -> None:
    data = encode(Cancel(job="a")) + encode(Cancel(job="b"))
    with Service(tmp_path, echo), connected(tmp_path) as connection:
        connection.sendall(data[:cut])
        connection.sendall(data[cut:])
        connection.shutdown(socket.SHUT_WR)
        assert [answer.said for answer in read_all(connection)] == [
            repr(Cancel(job="a")), repr(Cancel(job="b")),
        ]  # fmt: skip


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        (MAX_BYTES + 1).to_bytes(4, "big"),
        b"\0\0\0\x02{}",
        b"\0\0\0\x11" + b'{"kind":"nobody"}',
        b"\0\0\0\x03\xff\xfe\xfd",
    ],
)
def test_garbage_ends_its_connection_with_a_line_and_no_other(garbage: bytes, tmp_path: Path) -> None:
    with Service(tmp_path, echo), connected(tmp_path) as bad:
        bad.sendall(encode(Cancel(job="a")) + garbage)
        first, second = read_all(bad)
        assert first.said == repr(Cancel(job="a")) and len(second.problems) == 1
        assert Client(tmp_path).ask(Stop()).said == repr(Stop())


def test_problems_are_the_clients_errors(tmp_path: Path) -> None:
    with (
        Service(tmp_path, lambda request: Reply(problems=("one", "two"))),
        pytest.raises(UsageError) as caught,
    ):
        Client(tmp_path).ask(Stop())
    assert [problem.what for problem in caught.value.problems] == ["one", "two"]


def test_a_run_that_nobody_serves_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no controller serves this run"):
        Client(tmp_path).ask(Stop())
    with pytest.raises(UsageError, match="no controller serves this run"):
        Client(tmp_path / "absent").ask(Stop())
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(tmp_path / service.SOCKET))
    left.close()  # as a killed controller leaves it
    with pytest.raises(UsageError, match="no controller serves this run"):
        Client(tmp_path).ask(Stop())
    with Service(tmp_path, echo):
        assert Client(tmp_path).ask(Stop()).said


def test_requests_that_nobody_takes_any_more_are_answered_at_once() -> None:
    inbox = Inbox()
    answers: list[Reply] = []
    asks = threading.Thread(target=lambda: answers.append(inbox.answer(GetStatus())))
    asks.start()
    while not inbox._waiting.qsize():
        asks.join(0.01)
    inbox.close()
    asks.join()
    answers.append(inbox.answer(Cancel(job="a")))
    assert [answer.problems for answer in answers] == [("the controller has ended",)] * 2


def test_a_folder_with_a_long_name_has_a_socket_too(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    with Service(folder, echo):
        assert Client(folder).ask(Stop()).said == repr(Stop())


def test_many_clients_are_answered_at_once(tmp_path: Path) -> None:
    """Every one gets its own answer, although all requests are open together."""
    together = threading.Barrier(8)

    def answer(request: Request) -> Reply:
        together.wait(60)
        return echo(request)

    said: dict[str, str] = {}

    def client(name: str) -> None:
        said[name] = Client(tmp_path).ask(Cancel(job=name)).said

    with Service(tmp_path, answer):
        threads = [threading.Thread(target=client, args=(str(n),)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert said == {str(n): repr(Cancel(job=str(n))) for n in range(8)}


@pytest.mark.parametrize("count", [0, 1, 499, 500, 501, 1000, 1001, 7000])
def test_a_status_of_any_number_of_jobs_arrives_whole(count: int, tmp_path: Path) -> None:
    jobs = tuple(
        JobStatus(job=f"job-{n}", state="refused", iterations=1, why="w" * 400) for n in range(count)
    )
    status = RunStatus(state="running", now_s=1.0, policy="edf", jobs=jobs)
    with Service(tmp_path, lambda request: Reply(status=status)):
        assert Client(tmp_path).ask(GetStatus()).status == status
