"""The queue: every change of a job's or a shard's state, as guarded updates."""
