"""Draw the map of the cells, and colour and mark cells in the layers."""
