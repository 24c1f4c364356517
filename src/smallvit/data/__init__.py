"""From image files to augmented batches."""
