"""A run as a report: HTML, Markdown, JSON or JUnit, each a file that stands alone."""
