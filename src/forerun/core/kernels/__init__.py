"""Compiled primitives shared by several domains, and the rules by which every kernel is compiled (`jit`)."""
