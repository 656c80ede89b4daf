"""Whether our evals score real data, item by item, as lm-evaluation-harness does."""
