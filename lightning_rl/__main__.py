"""`python -m lightning_rl VERB …`."""

import sys

from lightning_rl.cli import main

if __name__ == "__main__":
    sys.exit(main())
