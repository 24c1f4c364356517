"""What `smallvit check` looks for before anything is trained."""
