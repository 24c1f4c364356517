"""What can be asked of `smallvit export`, and what is refused before torch is loaded and anything is written."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from smallvit.errors import RunError, UsageError, nearest
from smallvit.runs.folder import RunFolder
from smallvit.runs.members import is_group, replicate_members
from smallvit.shipping.place import check_place


class Kind(NamedTuple):
    """A format: what it is called in words, and the packages that writing and trying it takes."""

    title: str
    packages: tuple[str, ...] = ()
    extra: str = ""  # of smallvit, that installs them
    takes_groups: bool = True  # several models that answer as one


KINDS = {
    "onnx": Kind("ONNX", ("onnx", "onnxruntime", "onnxscript"), extra="onnx"),
    "torch-export": Kind("torch.export"),
    "timm": Kind("timm", takes_groups=False),
    "hf": Kind("Hugging Face", takes_groups=False),
}


class Request(NamedTuple):
    """Something that can be done: a finished run or group, a format, and a free place."""

    source: Path
    format: str
    place: Path
    overwrite: bool

    @property
    def kind(self) -> Kind:
        return KINDS[self.format]

    @property
    def runs(self) -> list[RunFolder]:
        """The run, or those of a group that answer as one."""
        return _runs(self.source)


def make_request(source: Path, format: str, out: str | Path | None, overwrite: bool) -> Request:
    """`out` is RUN-FORMAT beside the run where it is not given. Of a search it is the model that it ended with."""
    if format not in KINDS:
        raise UsageError(f"unknown format {format!r}: {nearest(format, KINDS)}")
    check_packages(format)
    source = _model_of(source)
    place = Path(out) if out is not None else source.resolve().with_name(f"{source.resolve().name}-{format}")
    check_place(place, overwrite)
    _check_source(source, format)
    return Request(source, format, place, overwrite)


def _model_of(source: Path) -> Path:
    """Of a search the model that it ended with; everything else is its own."""
    if not (source / "tune.json").is_file():
        return source
    from smallvit.tuning.folder import FINAL  # imports torch, and few come here

    return source / FINAL


def check_packages(format: str) -> None:
    kind = KINDS[format]
    if missing := [package for package in kind.packages if find_spec(package) is None]:
        raise UsageError(
            f"--{format} needs the package{'s' * (len(missing) > 1)} {', '.join(missing)}: pip install 'smallvit[{kind.extra}]'"
        )


def one_format(chosen: dict[str, bool]) -> str:
    """Of the flags that were given: one, no more and no less."""
    flags = [f"--{format}" for format in KINDS]
    wanted = [format for format, given in chosen.items() if given]
    if len(wanted) != 1:
        said = f"{' and '.join(f'--{format}' for format in wanted)} at once" if wanted else "no format was given"
        raise UsageError(f"export writes one format at a time, and {said}: choose one of {', '.join(flags)}")
    return wanted[0]


def _check_source(source: Path, format: str) -> None:
    if source.suffix == ".safetensors":
        raise UsageError(
            f"{source} is a model file, and the card of an export is made from its run: give the run folder"
        )
    runs = _runs(source)
    if waiting := [run.path.name for run in runs if not run.finished]:
        named = f" ({', '.join(waiting)})" if is_group(source) else ""
        raise RunError(f"{source} is not finished{named}: go on with `smallvit resume {source}`")
    if runs[0].results.get("judged_by") == "k-NN":
        raise UsageError(
            f"{source} was pretrained and has no classifier to export: train it with `smallvit train DATA --init {source}`, "
            "or take its features with `smallvit embed`"
        )
    if len(runs) > 1 and not KINDS[format].takes_groups:
        raise UsageError(
            f"{source} holds {len(runs)} models that answer as one, and --{format} writes the weights of one model: give "
            f"one of its runs ({runs[0].path}), or --onnx or --torch-export, which hold them all"
        )


def _runs(source: Path) -> list[RunFolder]:
    return [RunFolder(member.path) for member in replicate_members(source)] if is_group(source) else [RunFolder(source)]
