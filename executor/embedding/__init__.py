"""Embedding models: whole texts in, one vector each out, in packed steps without padding."""
