"""The engine: token ids and parameters in, completions out. Knows no job, file or database."""
