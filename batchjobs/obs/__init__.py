"""What an operator sees: logs, and the figures that several rooms count."""
