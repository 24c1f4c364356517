"""Losses and the heads they bring. Every module in this folder that defines one is found by name."""

from smallvit.objectives.base import Auxiliary, Objective, Setting, auxiliaries, objectives

__all__ = ["Auxiliary", "Objective", "Setting", "auxiliaries", "objectives"]
