"""How good a model is, with intervals, beside the floors."""
