"""Parts that methods are built from: memories, layers, losses and restores that several papers share."""
