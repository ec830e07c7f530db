"""`python -m bridge`."""

from bridge.cli import main

main()
