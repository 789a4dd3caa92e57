"""`python -m framp` is `framp`."""

from framp.cli import main

# Worker processes import this module as well.
if __name__ == "__main__":
    main()
