"""The exception of this package."""


class DocsError(Exception):
    """A page refers to something that the code does not have."""
