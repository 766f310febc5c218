"""Settings, presets, and what a restart does."""
