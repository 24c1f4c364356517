"""Studies: ways to train compared over seeds, beside what was published, and which of the published claims hold."""
