"""Frames over a stream: cut anywhere they arrive whole, and what is no message ends the connection and loses nothing."""

from __future__ import annotations

import contextlib
import itertools
import random
import socket

import msgspec
import pytest

from forerun.live.wire import MAX_BYTES, Channel, Decoder, WireError, encode


class Word(msgspec.Struct, frozen=True, tag="word"):
    text: str


class Number(msgspec.Struct, frozen=True, tag="number", forbid_unknown_fields=True):
    value: int


SENT = [Word("one"), Number(2), Word("ä\n\0"), Number(-4), Word("x" * 5000), Word("")]

#: what is no frame of a known message, and the line that says so
NO_MESSAGE = [
    (b"\0\0\0\5hello", "is none that is known here"),
    (b"\0\0\0\0", "is none that is known here"),
    (b"\0\0\0\2\xff\xfe", "is none that is known here"),
    (b'\0\0\0\x1a{"type":"other","value":1}', "is none that is known here"),
    (b'\0\0\0\x24{"type":"number","value":1,"more":2}', "is none that is known here"),
    ((MAX_BYTES + 1).to_bytes(4, "big"), f"announces {MAX_BYTES + 1} bytes"),
    (b"GET / HTTP/1.1\r\n\r\n", "bytes; a message has at most"),
]


def test_messages_arrive_whole_wherever_the_stream_is_cut() -> None:
    stream = b"".join(map(encode, SENT))
    cuts = [[len(stream)], list(range(len(stream) + 1)), [3, 4, 5, 7, 100]]
    draw = random.Random(5)
    cuts += [sorted(draw.choices(range(len(stream) + 1), k=draw.randint(0, 12))) for _ in range(300)]
    for cut in cuts:
        decoder: Decoder[Word | Number] = Decoder(Word | Number)
        edges = [0, *cut, len(stream)]
        parts = [stream[start:end] for start, end in itertools.pairwise(edges)]
        assert [one for part in parts for one in decoder.feed(part)] == SENT, cut


@pytest.mark.parametrize(("junk", "why"), NO_MESSAGE)
@pytest.mark.parametrize("whole", [True, False])
def test_what_is_no_message_closes_the_connection_after_those_before_it(
    junk: bytes, why: str, whole: bool
) -> None:
    ours, theirs = socket.socketpair()
    channel: Channel[Word | Number] = Channel(ours, Word | Number)
    with theirs:
        stream = b"".join(map(encode, SENT)) + junk + encode(Word("behind"))
        parts = [stream] if whole else [stream[at : at + 7] for at in range(0, len(stream), 7)]
        received = []
        for part in parts:
            theirs.sendall(part)
            received += channel.receive()
        assert received == SENT
        assert why in channel.fault and "\n" not in channel.fault
        channel.send(Word("nobody reads this"))
        channel.close()
        with contextlib.suppress(ConnectionResetError):  # so does an end that left bytes unread
            assert theirs.recv(1) == b""


def test_the_largest_message_passes_and_a_larger_one_is_not_sent() -> None:
    room = MAX_BYTES - len(encode(Word(""))) + 4
    decoder: Decoder[Word] = Decoder(Word)
    assert list(decoder.feed(encode(Word("x" * room)))) == [Word("x" * room)]
    with pytest.raises(WireError, match="Word: is 1048577 bytes long; a message has at most 1048576"):
        encode(Word("x" * (room + 1)))


def test_what_the_socket_does_not_take_at_once_is_sent_later() -> None:
    ours, theirs = socket.socketpair()
    sender: Channel[Word] = Channel(ours, Word)
    receiver: Channel[Word] = Channel(theirs, Word)
    large = [Word(str(number) * (MAX_BYTES // 2)) for number in range(4)]
    for one in large:
        sender.send(one)
    assert sender.wants_to_write
    received: list[Word] = []
    while len(received) < len(large):
        received += receiver.receive()
        sender.flush()
        assert not receiver.fault
    assert received == large and not sender.wants_to_write
    sender.close()
    assert receiver.receive() == [] and receiver.fault == "closed by the other end"
    receiver.close()
