"""``python -m accredit`` is the command line."""

from accredit.cli import main

if __name__ == "__main__":
    main()
