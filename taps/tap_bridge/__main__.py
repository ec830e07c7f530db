"""`python -m tap_bridge`."""

from tap_bridge import main

if __name__ == "__main__":
    main()
