"""The recipes that come with smallvit: TOML files."""
