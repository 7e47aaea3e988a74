"""``python -m centroid_encoder``, where the script of that name is not on the path."""

from centroid_encoder.cli import main

if __name__ == "__main__":
    main()
