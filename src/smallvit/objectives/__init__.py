"""Losses and the heads they bring. Every module in this folder that defines one is found by name."""

from smallvit.objectives.base import Auxiliary, Objective, TaskInfo, auxiliaries, objectives
from smallvit.objectives.drloc import DenseRelativeLocalization

__all__ = ["Auxiliary", "DenseRelativeLocalization", "Objective", "TaskInfo", "auxiliaries", "objectives"]
