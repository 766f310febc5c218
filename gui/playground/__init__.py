"""Chat, samples side by side, and synthetic load."""
