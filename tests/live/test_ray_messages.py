"""What needs no cluster: numbered messages over a connection that loses and repeats."""

from __future__ import annotations

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from forerun.live.engines.ray_agent import Inbox, Outbox

#: what happens next between two ends: a message is put, all that wait are sent, what was sent arrives, is lost or
#: arrives again, and so do the confirmations
STEPS = st.sampled_from(["put", "send", "arrive", "lose", "repeat", "confirm", "lose confirmation"])


@settings(deadline=None)
@given(st.lists(STEPS, max_size=80))
def test_every_message_arrives_once_and_in_order(steps: list[str]) -> None:
    outbox, inbox = Outbox(), Inbox()
    put: list[bytes] = []
    received: list[bytes] = []
    on_the_way: deque[tuple[int, list[bytes]]] = deque()
    confirmations: deque[int] = deque()

    def arrive() -> None:
        if on_the_way:
            received.extend(inbox.accept(*on_the_way[0]))
            confirmations.append(inbox.last)

    for step in steps:
        match step:
            case "put":
                put.append(b"%d" % len(put))
                assert outbox.put(put[-1]) == len(put)
            case "send":
                on_the_way.append(outbox.waiting())
            case "repeat":
                arrive()
            case "arrive":
                arrive()
                if on_the_way:
                    on_the_way.popleft()
            case "lose" if on_the_way:
                on_the_way.popleft()
            case "confirm" if confirmations:
                outbox.confirm(confirmations.popleft())
            case "lose confirmation" if confirmations:
                confirmations.popleft()
            case _:
                pass
        assert received == put[: len(received)]
    # A connection that holds for once delivers the rest.
    received.extend(inbox.accept(*outbox.waiting()))
    outbox.confirm(inbox.last)
    assert received == put
    assert outbox.waiting() == (len(put) + 1, [])


def test_what_follows_a_message_that_is_missing_waits_for_it() -> None:
    inbox = Inbox()
    assert inbox.accept(2, [b"second"]) == []
    assert inbox.accept(1, [b"first", b"second"]) == [b"first", b"second"]
    assert inbox.accept(1, [b"first"]) == []
