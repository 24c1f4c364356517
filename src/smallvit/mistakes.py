"""Mistakes in a recipe or in the options of an objective, in words: what the user wrote, and what would be accepted."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

NO_FLAGS: Mapping[str, str] = {}


def mistakes_in_words(
    error: ValidationError, model: type[BaseModel], given: Mapping[str, Any], *, inside: str = "",
    flags: Mapping[str, str] = NO_FLAGS,
) -> str:  # fmt: skip
    """One phrase per mistake: the flag or the dotted key, the value as it was `given`, and what would be accepted.

    `inside` is where the model stands in the recipe ("objective."); `flags` are the keys that were given by a flag.
    """
    mistakes: dict[str, str] = {}
    accepted: dict[str, list[str]] = {}  # a value of several kinds (a number or 'auto') has a reason for each
    for item in error.errors():
        names, section = _walk(model, [str(part) for part in item["loc"]])
        key = inside + ".".join(names)
        if item["type"] == "extra_forbidden":
            by_flag = f" ({flags[key]})" if key in flags else ""
            mistakes[key] = f"unknown key {key!r}{by_flag}: {_nearest_key(names, section, model, inside)}"
            continue
        value = _value_at(given, names, item["input"])
        mistakes[key] = f"{flags[key]} {value}" if key in flags else f"{key} = {value!r}"
        text = _accepted(item, key, section, by_flag=key in flags)
        if text not in accepted.setdefault(key, []):
            accepted[key].append(text)
    return "; ".join(": ".join([mistake, *_joined(accepted.get(key, []))]) for key, mistake in mistakes.items())


def _joined(accepted: list[str]) -> list[str]:
    """["should be at least 1", "should be 'auto'"] as one phrase; nothing for an unknown key."""
    return [" or ".join([accepted[0], *(text.removeprefix("should be ") for text in accepted[1:])])] if accepted else []


# What would be accepted, by the type of pydantic's error; the names in braces stand in its context.
_ACCEPTED = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "should be a whole number"),
    "int_parsing_size": "should be a whole number of fewer digits",
    **dict.fromkeys(("float_type", "float_parsing"), "should be a number"),
    "finite_number": "should be a finite number",
    **dict.fromkeys(("bool_type", "bool_parsing"), "should be true or false"),
    "string_type": "should be a word",
    "tuple_type": "should be a list of numbers",
    "missing": "should hold more numbers",  # no key is required: it is a place of a tuple
    "too_long": "should hold {max_length} numbers",
    "greater_than": "should be more than {gt}",
    "greater_than_equal": "should be at least {ge}",
    "less_than": "should be less than {lt}",
    "less_than_equal": "should be at most {le}",
    "literal_error": "should be {expected}",
    "value_error": "{error}",
}
_OF_SECTIONS = {"model_type", "model_attributes_type", "dict_type"}


def _accepted(item: ErrorDetails, key: str, section: type[BaseModel], by_flag: bool) -> str:
    kind, context = item["type"], item.get("ctx", {})
    if kind in _OF_SECTIONS:
        example = "name" if kind == "dict_type" else next(iter(section.model_fields))
        return f"it is a section; set its keys, for example {key}.{example}=..."
    if by_flag and context.get("expected") == "'auto'":
        return "leave it out"  # most flags take numbers only
    if kind not in _ACCEPTED:
        return item["msg"]
    return _ACCEPTED[kind].format_map({name: _plain(value) for name, value in context.items()})


def _plain(value: Any) -> str:
    """A limit as it was written: 0, not 0.0."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _nearest_key(names: list[str], section: type[BaseModel], model: type[BaseModel], inside: str) -> str:
    """Close names in the same section, or the same name in another one: lr is optimizer.lr."""
    elsewhere = [names[-1]] if len(names) > 1 and names[-1] in model.model_fields else []
    elsewhere += [
        f"{outer}.{names[-1]}"
        for outer, field in model.model_fields.items()
        if (inner := _section_of(field.annotation)) and names[-1] in inner.model_fields
    ]
    prefix = "".join(f"{name}." for name in names[:-1])
    here = difflib.get_close_matches(names[-1], section.model_fields, n=3, cutoff=0.6)
    close = [inside + key for key in (*elsewhere, *(prefix + name for name in here))]
    return f"did you mean {', '.join(close)}?" if close else f"choices: {', '.join(section.model_fields)}"


def _walk(model: type[BaseModel], loc: list[str]) -> tuple[list[str], type[BaseModel]]:
    """The part of an error's location that are keys (unions add their own names), and the innermost section."""
    names: list[str] = []
    for part in loc:
        names.append(part)
        field = model.model_fields.get(part)
        inner = _section_of(field.annotation) if field else None
        if inner is None:
            break
        model = inner
    return names, model


def _section_of(annotation: Any) -> type[BaseModel] | None:
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _value_at(given: Mapping[str, Any], names: list[str], otherwise: Any) -> Any:
    """The whole value that was given for a key, where pydantic names only the element it stumbled over."""
    value: Any = given
    for name in names:
        if not isinstance(value, Mapping) or name not in value:
            return otherwise
        value = value[name]
    return value
