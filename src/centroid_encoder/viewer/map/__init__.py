"""The map of the cells, and what layers show of it."""
