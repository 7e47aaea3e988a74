"""Tables of cells, the layers they are joined to, and files.

From a file to its layer: `reader` reads an AnnData; `catalog` lists it as a `Table` (`tables`),
guesses the columns of ids and images (`columns`), reads the ids of the layers (`ids`), and joins
rows to ids (`join`).
"""
