"""`python -m scripts`: the command line behind the Makefile."""

from scripts.cli import main

if __name__ == "__main__":
    main()
