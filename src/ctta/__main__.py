"""Run ``python -m ctta`` as the command ``ctta``."""

from ctta.cli import main

if __name__ == "__main__":
    main()
