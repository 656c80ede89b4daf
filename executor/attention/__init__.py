"""Attention over the paged cache: one signature, several backends (`base.AttentionBackend`)."""
