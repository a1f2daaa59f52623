"""Checks of what users give: arguments, images, models, numbers and lists."""
