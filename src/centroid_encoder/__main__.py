"""``python -m centroid_encoder``, for when the script is not on the path."""

from centroid_encoder.cli import main

if __name__ == "__main__":
    main()
