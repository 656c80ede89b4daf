"""`batchjobs bench`: the same requests in several ways on this machine, measured in one run."""
