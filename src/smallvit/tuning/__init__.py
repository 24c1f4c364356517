"""`smallvit tune`: which settings suit these images, found by training with many of them in a given time."""
