"""``python -m foldwise.cli``."""

from foldwise.cli import main

if __name__ == "__main__":
    main()
