from smallvit.cli import run

run()
