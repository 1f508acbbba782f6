"""Compiled primitives used by more than one room: the compile policy (`jit`), and whatever earns a second user."""
