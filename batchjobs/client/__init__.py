"""What a command asks of jobs, answered from the data here or by a server."""
