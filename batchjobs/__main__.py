from batchjobs.cli import main

main()
