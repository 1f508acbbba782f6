"""How sessions of requests end.

(Holds constants of a kernel, so it belongs to the digest that names the compiled code's folder: forerun.core.kernels.)
"""

from __future__ import annotations

from typing import Final

#: all requests were answered
COMPLETE: Final = 1
#: its user gave up after an answer that took too long
ABANDONED: Final = 2
#: one of its requests was refused
REFUSED: Final = 3
