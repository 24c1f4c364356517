"""Whether this machine multiplies in bf16, and whether it is fast at it.

A virtual machine may announce a processor's units for bf16 (AMX) and not let them be used: the first product ends the process with an
illegal instruction, and there is no error to catch. So where such units are announced, a process of its own tries them first, once after
each start of the machine.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import torch

from smallvit.data.cache_folder import cache_folder
from smallvit.errors import UsageError
from smallvit.runs.atomic import write_text

LIMIT = "ONEDNN_MAX_CPU_ISA"  # oneDNN's own word for the best instructions that it may take
WITHOUT_AMX = "AVX512_CORE_FP16"
TRY = "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); a @ a"
TRY_SECONDS = 120.0  # importing torch from a slow disk
BOOT = Path("/proc/sys/kernel/random/boot_id")
FILE = "bf16.json"
STOPS = (
    "bf16 ends a process on this machine: units for it (AMX) are announced, and the system does not let them be used; "
    f"{LIMIT}={WITHOUT_AMX} does without them"
)


def has_fast_bf16(device: str) -> bool:
    """Whether there are units for it. Without them a CPU takes up to ten times as long in bf16 as in fp32; with them it may be slower, too."""
    if device.startswith("cuda"):
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device == "cpu" and takes_amx():
        return not _ends_a_process()
    return device == "cpu" and _has_products()


def why_not(device: str) -> str:
    """Why nothing can be computed in bf16; empty where it can."""
    return STOPS if device == "cpu" and takes_amx() and _ends_a_process() else ""


def check_bf16(device: str) -> None:
    if problem := why_not(device):
        raise UsageError(f"{problem}; or take --precision fp32")


def takes_amx() -> bool:
    """Units for whole tiles."""
    return bool(torch.cpu._is_amx_tile_supported()) and not _limited("AMX")


def _has_products() -> bool:
    """Units for products of two vectors, of AVX-512."""
    return bool(torch.cpu._is_avx512_bf16_supported()) and not _limited("BF16", "FP16", "AMX")


def _limited(*above: str) -> bool:
    """Whether oneDNN was told to take none of these instructions, each of which has those before it."""
    limit = os.environ.get(LIMIT, "").upper()
    return limit.startswith(("SSE", "AVX")) and not any(name in limit for name in above)


@functools.cache
def _ends_a_process() -> bool:
    """Asked once; the answer is kept until the machine is started anew, for every run of a group is a process."""
    try:
        machine = f"{BOOT.read_text(encoding='ascii').strip()} torch {torch.__version__}"
    except OSError:
        return _try()
    kept = cache_folder() / FILE
    try:
        known = json.loads(kept.read_text(encoding="utf-8"))
        if known["machine"] == machine and isinstance(known["ends"], bool):
            return known["ends"]
    except (OSError, ValueError, KeyError, TypeError):
        pass
    ends = _try()
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_text(kept, json.dumps({"machine": machine, "ends": ends}))
    except OSError:
        pass  # no place for it: the next process tries again
    return ends


def _try() -> bool:
    """Python ends with 0 or, after an error, with 1; anything else is the system's doing."""
    try:
        ended = subprocess.run([sys.executable, "-c", TRY], capture_output=True, timeout=TRY_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return ended.returncode not in (0, 1)
