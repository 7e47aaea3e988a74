"""The rivals of the paper's comparisons."""
