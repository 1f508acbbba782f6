"""What the processes of a live run say to each other, and what is journalled: records whose JSON names their kind."""

from __future__ import annotations

import msgspec


class Message(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    tag=lambda name: name.lower(),
):
    """One kind of message or observation; its JSON has the class's name, in lower case, as `kind`."""
