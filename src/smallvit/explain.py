"""Mistakes in a recipe or in the options of an objective, in words: what the user wrote, and what would be accepted."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

NO_FLAGS: Mapping[str, str] = {}


def explain(
    error: ValidationError, model: type[BaseModel], given: Mapping[str, Any], *, inside: str = "",
    flags: Mapping[str, str] = NO_FLAGS,
) -> str:  # fmt: skip
    """One phrase per mistake: the flag or the dotted key, the value as it was `given`, and what would be accepted.

    `inside` is where the model stands in the recipe ("objective."); `flags` are the keys that were given by a flag.
    """
    lines: dict[str, list[str]] = {}
    for item in error.errors():
        names, section = _walk(model, [str(part) for part in item["loc"]])
        key = inside + ".".join(names)
        if item["type"] == "extra_forbidden":
            by_flag = f" ({flags[key]})" if key in flags else ""
            lines[key] = [f"unknown key {key!r}{by_flag}: {_nearest_key(names, section, model, inside)}"]
            continue
        value = _value_at(given, names, item["input"])
        entry = lines.setdefault(key, [f"{flags[key]} {value}" if key in flags else f"{key} = {value!r}"])
        text = _accepted(item, key, section)
        if key in flags and text == "should be 'auto'":
            text = "leave it out"  # most flags take numbers only
        if text not in entry:
            entry.append(text)
    return "; ".join(": ".join([mistake, *_joined(accepted)]) for mistake, *accepted in lines.values())


def _joined(accepted: list[str]) -> list[str]:
    """["should be at least 1", "should be 'auto'"] as one phrase; nothing for an unknown key."""
    return [" or ".join([accepted[0], *(text.removeprefix("should be ") for text in accepted[1:])])] if accepted else []


_PLAINER = {
    "Value error, ": "",
    "Input should be ": "should be ",
    "Field required": "should hold more numbers",
    r"Tuple should have at most (\d+) items.*": r"should hold \1 numbers",
    ", (unable to|got a) .*": "",
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid boolean": "true or false",
    "a valid string": "a word",
    "a valid tuple": "a list of numbers",
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
    "greater than": "more than",
}


def _accepted(item: ErrorDetails, key: str, section: type[BaseModel]) -> str:
    """pydantic's message in everyday words."""
    if item["type"] in {"model_type", "model_attributes_type", "dict_type"}:
        example = "name" if item["type"] == "dict_type" else next(iter(section.model_fields))
        return f"it is a section; set its keys, for example {key}.{example}=..."
    text = item["msg"]
    for pattern, plain in _PLAINER.items():
        text = re.sub(pattern, plain, text)
    return text


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
    found: Any = given
    for name in names:
        if not isinstance(found, Mapping) or name not in found:
            return otherwise
        found = found[name]
    return found
