from smallvit.cli import main

main()
