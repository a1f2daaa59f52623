"""Files, digests, devices and imports of user code."""
