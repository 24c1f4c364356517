"""A page to try a trained model on, served by this computer to its own browser."""
