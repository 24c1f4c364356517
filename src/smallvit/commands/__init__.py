"""The commands. No logic: every one calls api.py or its like. Nothing heavy is imported before a command runs."""

import time

STARTED = time.monotonic()  # a budget counts from here, so that the heavy imports are part of it
