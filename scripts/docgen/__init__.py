"""Build documentation pages from the code: its docstrings, signatures, comments and statements."""
