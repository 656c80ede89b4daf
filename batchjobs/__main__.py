"""`python -m batchjobs` is the command `batchjobs`."""

from batchjobs.cli import main

main()
