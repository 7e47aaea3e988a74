from centroid_encoder.tl._read import Cells, Missing, listed, near_matches, obs_column, read_cells  # noqa
