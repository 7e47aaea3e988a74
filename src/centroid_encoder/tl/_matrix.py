from centroid_encoder.tl._read import Source, fill_missing  # noqa
