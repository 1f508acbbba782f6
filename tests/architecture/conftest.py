"""The product's files, which many rules look at: parsed once."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator

import pytest
from benchmarks.structure import Module, modules


@pytest.fixture(scope="session")
def known() -> Iterator[dict[str, Module]]:
    """The files of the product by name; nothing changes their trees.

    These are a million objects, which the garbage collector would look through again and again.
    """
    gc.disable()
    found = modules()
    gc.freeze()
    gc.enable()
    yield found
    gc.unfreeze()


def walk(tree: ast.AST) -> Iterator[ast.AST]:
    """A node and all below it, in no order; much faster than `ast.walk`."""
    todo = [tree]
    while todo:
        node = todo.pop()
        yield node
        for name in node._fields:
            below = getattr(node, name, None)
            if isinstance(below, ast.AST):
                todo.append(below)
            elif isinstance(below, list):
                todo += [one for one in below if isinstance(one, ast.AST)]
