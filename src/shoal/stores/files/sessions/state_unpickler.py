"""Reader of pickled states that creates only objects of known classes."""

from __future__ import annotations

from importlib import import_module
from pickle import Unpickler, UnpicklingError
from typing import Any, BinaryIO

__all__ = ["StateUnpickler", "UnpicklingError"]

_SAFE_CALLABLES = frozenset(
    (
        ("builtins", "set"),
        ("builtins", "frozenset"),
        ("array", "_array_reconstructor"),
        ("array", "array"),
        ("collections", "Counter"),
        ("msgspec._utils", "rebuild"),
        ("pathlib", "PosixPath"),
    )
)


class StateUnpickler(Unpickler):
    """Creates only objects of classes that are defined in the modules of the state."""

    def __init__(self, file: BinaryIO, modules: tuple[str, ...]) -> None:
        super().__init__(file)
        self._modules = modules

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _SAFE_CALLABLES:
            return super().find_class(module, name)
        if module in self._modules:
            found = getattr(import_module(module), name, None)
            if isinstance(found, type) and found.__module__ == module:
                return found
        raise UnpicklingError(f"{module}.{name} is not part of this state.")
