"""Our engine beside others on the same tokens: `scripts/bench` runs it."""
