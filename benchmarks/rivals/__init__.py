"""The methods that the paper compares with, behind one interface: `fit` and `transform`."""
