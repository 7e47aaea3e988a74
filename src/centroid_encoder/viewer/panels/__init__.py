"""The parts of the dock widget."""
