"""The run folder, groups of them, and what is done with them once they are finished."""
