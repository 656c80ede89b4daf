"""The object store: bytes that are written once, under keys of ours."""
