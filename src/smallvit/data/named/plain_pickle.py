"""Pickled dictionaries of lists, texts and byte arrays, read without unpickling: CIFAR is published so.

A pickle is a program. This reads the few instructions that such data needs, and refuses every other: no function is
looked up by name and none is called, so nothing but plain values and uint8 arrays can come of it.
"""

from __future__ import annotations

import pickletools
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from smallvit.errors import DataError

MOST_BYTES = 1 << 29
MARK = object()
RECONSTRUCT = ("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct")
NDARRAY, DTYPE = "numpy ndarray", "numpy dtype"
PLAIN = {
    "SHORT_BINSTRING", "BINSTRING", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BINUNICODE", "SHORT_BINUNICODE",
    "BININT", "BININT1", "BININT2", "LONG1",
}  # fmt: skip
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class Named:
    """A name in the pickle. It stays a name."""

    def __init__(self, name: str) -> None:
        self.name = name


class Stored:
    """An array, or the type of its numbers, under way: what it was to be made of, and what it was told then."""

    def __init__(self, kind: str, arguments: tuple[Any, ...]) -> None:
        self.kind = kind
        self.arguments = arguments
        self.state: tuple[Any, ...] = ()


class Refused(Exception):
    """It holds more than plain data."""


def read_plain(path: Path) -> dict[str, Any]:
    """A dictionary of plain values, lists and uint8 arrays, by name."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise DataError(f"{path} is larger than {MOST_BYTES >> 20} MiB")
        found = _Reader().read(path.read_bytes())
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None
    except Refused as error:
        raise DataError(f"{path} is refused: {error}; only plain data is read from a pickle") from None
    except DataError:
        raise
    except Exception as error:  # instructions in an order that makes no sense
        raise DataError(f"{path} is damaged: {error or type(error).__name__}") from None
    if not isinstance(found, dict):
        raise DataError(f"{path} holds a {type(found).__name__} instead of a dictionary")
    return {_text(key): _value(value) for key, value in found.items()}


class _Reader:
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def read(self, program: bytes) -> Any:
        for instruction, argument, _ in pickletools.genops(program):
            name = instruction.name
            if name == "STOP":
                return self.stack.pop()
            if name in PLAIN:
                self.stack.append(argument)
            elif name in CONSTANTS:
                self.stack.append(CONSTANTS[name])
            elif name in TUPLES:
                self._tuple(TUPLES[name])
            elif (step := getattr(self, f"_{name.lower()}", None)) is not None:
                step(argument)
            else:
                raise Refused(f"it holds the instruction {name}")
        raise ValueError("it ends in the middle")

    def _tuple(self, count: int | None = None) -> None:
        if count is None:
            self.stack.append(tuple(self._to_mark()))
        else:
            held = self.stack[len(self.stack) - count :]
            if len(held) < count or MARK in held:
                raise ValueError("too little for a tuple")
            del self.stack[len(self.stack) - count :]
            self.stack.append(tuple(held))

    def _to_mark(self) -> list[Any]:
        place = max(number for number, value in enumerate(self.stack) if value is MARK)
        held = self.stack[place + 1 :]
        del self.stack[place:]
        return held

    def _proto(self, _: Any) -> None: ...

    def _frame(self, _: Any) -> None: ...

    def _mark(self, _: Any) -> None:
        self.stack.append(MARK)

    def _empty_dict(self, _: Any) -> None:
        self.stack.append({})

    def _empty_list(self, _: Any) -> None:
        self.stack.append([])

    def _append(self, _: Any) -> None:
        value = self.stack.pop()
        self._top(list).append(value)

    def _appends(self, _: Any) -> None:
        values = self._to_mark()
        self._top(list).extend(values)

    def _setitem(self, _: Any) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._top(dict)[_text(key)] = value

    def _setitems(self, _: Any) -> None:
        values = self._to_mark()
        self._top(dict).update(zip(map(_text, values[::2]), values[1::2], strict=True))

    def _binput(self, place: int) -> None:
        self.memo[place] = self.stack[-1]

    _long_binput = _binput

    def _memoize(self, _: Any) -> None:
        self.memo[len(self.memo)] = self.stack[-1]

    def _binget(self, place: int) -> None:
        self.stack.append(self.memo[place])

    _long_binget = _binget

    def _global(self, name: str) -> None:
        if name not in (*RECONSTRUCT, NDARRAY, DTYPE):
            raise Refused(f"it names {name.replace(' ', '.')}")
        self.stack.append(Named(name))

    def _stack_global(self, _: Any) -> None:
        last, first = self.stack.pop(), self.stack.pop()
        self._global(f"{_text(first)} {_text(last)}")

    def _reduce(self, _: Any) -> None:
        arguments, what = self.stack.pop(), self.stack.pop()
        if not isinstance(what, Named) or what.name == NDARRAY or not isinstance(arguments, tuple):
            raise Refused("it calls something")
        self.stack.append(Stored("type" if what.name == DTYPE else "array", arguments))

    def _build(self, _: Any) -> None:
        state = self.stack.pop()
        self._top(Stored).state = state

    def _top(self, kind: type) -> Any:
        if not self.stack or not isinstance(self.stack[-1], kind):
            raise Refused("it changes something that is no list, dictionary or array")
        return self.stack[-1]


def _text(key: Any) -> str:
    if isinstance(key, bytes):
        return key.decode("latin-1")
    if not isinstance(key, str):
        raise Refused(f"a {type(key).__name__} is a key")
    return key


def _value(value: Any) -> Any:
    """As the caller gets it: arrays built of their bytes."""
    if isinstance(value, Named) or value is MARK:
        raise Refused("it holds a name instead of a value")
    if not isinstance(value, Stored):
        return value
    _, shape, kind, by_column, pixels = value.state
    if value.kind != "array" or not isinstance(kind, Stored) or kind.kind != "type" or _text(kind.arguments[0]) != "u1":
        raise Refused("an array is not of bytes")
    content = pixels.encode("latin-1") if isinstance(pixels, str) else pixels
    if (
        not isinstance(content, bytes)
        or not all(isinstance(n, int) and n >= 0 for n in shape)
        or prod(shape) != len(content)
    ):
        raise ValueError("an array has not as many bytes as its shape says")
    return np.frombuffer(content, dtype=np.uint8).reshape(shape, order="F" if by_column else "C")
