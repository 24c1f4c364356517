"""What `smallvit list` and `smallvit recipe show` say of models, recipes, methods and data sets."""
