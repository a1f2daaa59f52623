"""What the rest builds on: files, digests, devices, imports of user code."""
