"""The numbers: network, objective, training, regions, quality and state.

Nothing here knows of AnnData, matplotlib or Qt.
"""
