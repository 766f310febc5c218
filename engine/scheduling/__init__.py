"""Who runs next, and who gives way."""
