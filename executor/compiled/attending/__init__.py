"""The attention kernel's parts: each works on one unit of rows, on the thread that has it."""
