"""Programs that measure the numbers in the README and the documentation."""
