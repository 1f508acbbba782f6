"""Which slot has which GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from forerun.live.runs import gpus_by_node


def test_slots_have_the_gpus_that_are_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5,7,9")
    assert gpus_by_node({"a": 1, "b": 2}) == {"a": ("3",), "b": ("5", "7")}
    assert gpus_by_node({"a": 5}) == {}  # slots that are places for processes


def test_all_gpus_of_the_machine_are_visible_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus_by_node({"a": 2}) == {}
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho GPU-1\necho GPU-2\n")
    tool.chmod(0o755)
    assert gpus_by_node({"a": 2}) == {"a": ("GPU-1", "GPU-2")}
