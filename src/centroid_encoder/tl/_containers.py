from centroid_encoder.tl._reference import check_links, size_of, unreadable  # noqa
