"""The programs of benchmarks/reliability, in short: what they make at length stands in docs/reliability.md."""

from __future__ import annotations

import sys

from helpers import PROJECT

sys.path.insert(0, str(PROJECT / "benchmarks" / "reliability"))
