"""From what was asked to a recipe without `auto`, and all that a run needs to start."""
