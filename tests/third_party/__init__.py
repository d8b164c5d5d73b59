"""What a user of the package may add, each written in one file as outside of it, and tried in whole searches.

docs/extending.md shows these files literally.
"""
