"""A finished run for elsewhere: one computation from pixels to probabilities, in the formats of others, with a model card."""
