"""The error of this package."""


class DocsError(Exception):
    """A page asks for something that the code does not have."""
