"""Randomness without hidden streams: every draw is a function of (seed, purpose, position).

There is no state to save. A run that was killed, a loader with other workers, or a batch cut in two draws
the same numbers, because a draw depends on what it is for and on the sample's position in the epoch's
order, not on how many draws came before. B samples, K draws each.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

# The multipliers of the splitmix64 finaliser, as signed 64-bit integers (torch has no unsigned arithmetic).
_STRIDE = -7046029254386353131
_MIX_A = -4658895280553007687
_MIX_B = -7723592293110705685


def key_of(seed: int, *purpose: str | int) -> int:
    """A 63-bit key for one purpose, for example `key_of(0, "order", epoch)`."""
    text = "/".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def generator(seed: int, *purpose: str | int, device: str | torch.device = "cpu") -> torch.Generator:
    """A torch generator that starts from the key of this purpose."""
    return torch.Generator(device=device).manual_seed(key_of(seed, *purpose))


def uniform(key: int, positions_B: Tensor, count: int) -> Tensor:
    """(B, K) numbers in [0, 1), each a hash of (key, position, column): the same on every device."""
    columns_K = torch.arange(count, device=positions_B.device)
    counters_BK = positions_B.to(torch.int64)[:, None] * count + columns_K
    z = (counters_BK + key) * _STRIDE
    z = (z ^ _shift_right(z, 30)) * _MIX_A
    z = (z ^ _shift_right(z, 27)) * _MIX_B
    z = z ^ _shift_right(z, 31)
    return _shift_right(z, 40).to(torch.float32) / (1 << 24)


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Logical shift: torch's >> copies the sign bit of int64."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)
