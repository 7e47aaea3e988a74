"""The paper's experiments, and what the README and the docs claim."""
