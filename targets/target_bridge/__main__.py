"""`python -m target_bridge`."""

from target_bridge import main

if __name__ == "__main__":
    main()
