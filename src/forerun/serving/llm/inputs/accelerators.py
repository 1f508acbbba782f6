"""Accelerators that servers of language models run on: memory and peak rates, from their makers' data sheets.

`memory_bytes` is what the driver reports as the total (`nvidia-smi`, `memory.total`), a little less than the name says;
of it CUDA itself leaves about 99.4 % to programs. Rates are the sheets' for dense matrices. A card that is not listed is
given by its memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

_MIB: Final = 2**20


@dataclass(frozen=True)
class Accelerator:
    """One card.

    Parameters
    ----------
    memory_bytes : in all, as the driver reports it.
    bandwidth_bytes_per_s : of its memory, at its peak.
    flops_16bit : operations a second in bfloat16 at its peak.
    source : where these are from.
    """

    memory_bytes: float
    bandwidth_bytes_per_s: float
    flops_16bit: float
    source: str


def _card(memory_mib: int, bandwidth_tb_per_s: float, tflops: float, source: str) -> Accelerator:
    return Accelerator(memory_mib * _MIB, bandwidth_tb_per_s * 1e12, tflops * 1e12, source)


ACCELERATORS: Final[Mapping[str, Accelerator]] = MappingProxyType(
    {
        "H100-80GB": _card(81_559, 3.35, 989.4, "NVIDIA H100 data sheet (SXM5)"),
        "H100-PCIe-80GB": _card(81_559, 2.0, 756.0, "NVIDIA H100 data sheet (PCIe)"),
        "H200-141GB": _card(143_771, 4.8, 989.4, "NVIDIA H200 data sheet (SXM)"),
        "B200-180GB": _card(183_359, 8.0, 2250.0, "NVIDIA B200 data sheet (HGX)"),
        "A100-80GB": _card(81_920, 2.039, 312.0, "NVIDIA A100 data sheet (SXM4, 80 GB)"),
        "A100-40GB": _card(40_960, 1.555, 312.0, "NVIDIA A100 data sheet (SXM4, 40 GB)"),
        "L40S-48GB": _card(46_068, 0.864, 362.05, "NVIDIA L40S data sheet"),
        "L4-24GB": _card(23_034, 0.3, 121.0, "NVIDIA L4 data sheet"),
        "A10G-24GB": _card(23_028, 0.6, 70.0, "NVIDIA A10G data sheet"),
    }
)
