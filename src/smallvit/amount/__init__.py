"""How many more images would help: training on shares of them, a power law, and what it says of twice as many."""
