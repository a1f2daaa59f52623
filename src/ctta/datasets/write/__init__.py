"""Write corrupted versions of datasets."""
