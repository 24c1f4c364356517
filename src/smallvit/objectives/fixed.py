"""A module that a loss needs and that never changes: a teacher whose weights stand in a file of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class Fixed(nn.Module):
    """Holds a module that goes where its loss goes (`.to`), and is no part of what is trained, averaged or stored.

    It stays in eval mode and gives no gradients. Its tensors are in neither parameters() nor state_dict(), so that no
    checkpoint holds what can be read again from where it came; a copy of the loss shares it.
    A teacher that follows its student does change: that one is a `heads.Teacher`.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._held = (module.eval().requires_grad_(False),)  # in a tuple: torch does not count it as a part

    @property
    def module(self) -> nn.Module:
        return self._held[0]

    @torch.no_grad()
    def forward(self, *given: Any) -> Any:
        return self.module(*given)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Fixed:
        """What torch calls for `.to`, `.cuda` and `.half`."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.module._apply(fn, recurse)
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Fixed:
        return Fixed(self.module)
