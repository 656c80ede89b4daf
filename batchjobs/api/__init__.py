"""The HTTP API: the public Batch API's routes over the same rooms that the command line uses."""
