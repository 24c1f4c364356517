"""`smallvit doctor`: what smallvit finds on this machine, what is slow here and why, and what is missing."""
