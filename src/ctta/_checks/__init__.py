"""Checks of user input: arguments, images, models, numbers and lists."""
