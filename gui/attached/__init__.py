"""Other servers' prefix caches, drawn from their KV events."""
