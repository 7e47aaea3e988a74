"""Tables of cells, the layers they are joined to, and files."""
