"""Observers of a run: objects whose methods are called with its events and cannot change it.

Each domain has a protocol `Observer`, whose methods are what can be observed there. An observer has at least one of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from forerun.core.errors import Problem, UsageError, suggestion


def checked_observers(watch: Iterable[Any], protocol: type, *, unobserved: str = "") -> tuple[Any, ...]:
    """The observers in `watch`, each of which has a method of the domain's protocol.

    protocol: the domain's `Observer`. unobserved: the kind of run that shows nothing to observers, where it is one, such
    as "a run of several trials". Raises UsageError for an observer without such a method, with a method whose name is
    nearly one, that takes other arguments, or that a call does not run (`async`, a generator); and for any observer of a
    run that cannot be observed. It names what can be observed.
    """
    if not isinstance(watch, Iterable):
        raise UsageError.at("watch", f"takes a list of observers, not {type(watch).__name__}")
    observers = tuple(watch)
    methods = {
        name: method
        for name, method in vars(protocol).items()
        if inspect.isfunction(method) and name[0] != "_"
    }
    known = "; ".join(f"{name}{_arguments(method)}" for name, method in methods.items())
    if observers and unobserved:
        raise UsageError.at("watch", f"{unobserved} cannot be observed")
    problems = [
        Problem(f"watch: {_name(observer)}", f"{what}; what can be observed: {known}")
        for observer in observers
        if (what := _fault(observer, methods))
    ]
    if problems:
        raise UsageError(*problems)
    return observers


def _fault(observer: Any, methods: dict[str, Any]) -> str:
    """What is wrong with an observer, empty if nothing is."""
    if isinstance(observer, type):
        return "is a class; pass an instance of it"
    absent = [name for name in methods if not callable(getattr(observer, name, None))]
    own = [
        name for name in dir(observer) if not name.startswith("_") and callable(getattr(observer, name, None))
    ]
    for name in own:
        if name not in methods and (hint := suggestion(name, absent).strip()):
            return f"has a method {name!r}, which is never called; {hint}"
    if len(absent) == len(methods):
        return "observes nothing: it has no method that is called"
    for name in set(methods) - set(absent):
        expected = len(inspect.signature(methods[name]).parameters) - 1
        own_method = getattr(observer, name)
        if inspect.iscoroutinefunction(own_method) or inspect.isgeneratorfunction(own_method):
            return f"has a method {name!r} whose body a call does not run (`async` or `yield`)"
        try:
            inspect.signature(own_method).bind(*range(expected))
        except TypeError:
            return f"has a method {name!r} that does not take {expected} arguments"
        except ValueError:  # a built-in function that does not say what it takes
            continue
    return ""


def _arguments(method: Any) -> str:
    return f"({', '.join(list(inspect.signature(method).parameters)[1:])})"


def _name(observer: Any) -> str:
    return observer.__name__ if isinstance(observer, type) else type(observer).__name__
