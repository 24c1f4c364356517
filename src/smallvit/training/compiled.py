"""torch.compile of a model, with the code that it makes kept between runs.

What is kept is machine code, so it lies in a folder of the user's own: one that others may write to is refused.
"""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

from torch import nn

from smallvit.data.cache_folder import compiled_folder
from smallvit.errors import UsageError

TORCHS_FOLDER = "TORCHINDUCTOR_CACHE_DIR"  # torch's own word for it; one that is set stays
COMPILERS = ("c++", "g++", "clang++")


def compile_model(model: nn.Module) -> None:
    """In place: names of parameters stay as they are. The first forward pass compiles, or finds what is kept."""
    if TORCHS_FOLDER not in os.environ:
        os.environ[TORCHS_FOLDER] = str(_own_folder())
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)  # that no GPU was found is no news
    model.compile(dynamic=False)  # batches are of one size


def has_compiler() -> bool:
    return bool(os.environ.get("CXX")) or any(map(shutil.which, COMPILERS))


def _own_folder() -> Path:
    folder = compiled_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if hasattr(os, "getuid"):
        found = folder.stat()
        if found.st_uid != os.getuid() or found.st_mode & 0o022:
            raise UsageError(
                f"{folder} holds compiled code, and others than you may write to it: `chmod 700 {folder}`, set "
                "SMALLVIT_CACHE to a folder of your own, or leave --compile out"
            )
    return folder
