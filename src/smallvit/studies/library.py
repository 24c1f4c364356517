"""Studies that come with smallvit, and those in TOML files of others; the claims of the papers."""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from smallvit.errors import UsageError, nearest
from smallvit.studies.spec import Study

MOST_BYTES = 1_000_000


class PaperClaim(NamedTuple):
    """A claim of a paper. `needs` says what deciding it takes that is missing here; empty where a study can be run."""

    number: str
    paper: str
    says: str
    published: str
    needs: str = ""


def study_names() -> list[str]:
    folder = resources.files("smallvit.studies") / "shipped"
    return sorted(entry.name[:-5] for entry in folder.iterdir() if entry.name.endswith(".toml"))


def study_text(name: str | Path) -> str:
    if str(name).endswith(".toml"):
        try:
            if Path(name).stat().st_size > MOST_BYTES:
                raise UsageError(f"study file {name} is too large: at most {MOST_BYTES:,} bytes")
            return Path(name).read_text(encoding="utf-8")
        except OSError as error:
            raise UsageError(f"cannot read study file {name}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise UsageError(f"study file {name} is not valid TOML: it is not UTF-8 text") from None
    if str(name) not in study_names():
        choices = f"{nearest(str(name), study_names())} (see `smallvit study list`, or give a .toml file)"
        raise UsageError(f"unknown study {str(name)!r}: {choices}")
    return (resources.files("smallvit.studies") / "shipped" / f"{name}.toml").read_text(encoding="utf-8")


def read_study(name: str | Path) -> Study:
    """By name, or from a .toml file."""
    try:
        tree = tomllib.loads(study_text(name))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"study file {name} is not valid TOML: {error}") from None
    return study_from(tree, f"study {name}")


def study_from(tree: Any, origin: str) -> Study:
    try:
        return Study.model_validate(tree)
    except ValidationError as error:
        raise UsageError(f"{origin}: {in_words(error)}") from None


def in_words(error: ValidationError) -> str:
    """The first mistake: where it is, and what is wrong."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    said = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        said = "is no key of a study"
    return f"{place}: {said}" if place else said


def paper_claims() -> list[PaperClaim]:
    """All claims of the four papers, in their order."""
    text = (resources.files("smallvit.studies") / "claims.toml").read_text(encoding="utf-8")
    return [PaperClaim(**claim) for claim in tomllib.loads(text)["claims"]]
