"""Numerical code: networks, training, placement, quality and stored state.

It uses neither AnnData nor matplotlib nor Qt.
"""
