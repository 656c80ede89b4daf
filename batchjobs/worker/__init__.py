"""Workers: the only room that knows both the queue and the executor."""
