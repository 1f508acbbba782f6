"""Filling leases backwards."""

from __future__ import annotations

from forerun.cluster.engine.kernels.arrays import I64
from forerun.core.kernels.jit import kernel


@kernel
def fits(claims: I64, left: I64) -> bool:
    """Whether claims fit one after another, each into the last leases with enough free GPUs before its end.

    `claims`: rows of size, leases wanted, leases within; `left`: free GPUs of each lease, used up in place.
    """
    for k in range(len(claims)):
        size, wanted, at = claims[k, 0], claims[k, 1], claims[k, 2]
        if at < wanted:
            return False
        while wanted > 0 and at > 0:
            at -= 1
            if left[at] >= size:
                left[at] -= size
                wanted -= 1
        if wanted > 0:
            return False
    return True
