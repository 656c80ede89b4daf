"""batchjobs: a self-hosted, OpenAI-compatible Batch API with its own engine."""

__version__ = "0.1.0"
