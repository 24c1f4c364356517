"""The one loop, and what it needs to go on after a kill."""
