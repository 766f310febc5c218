"""The HTTP gateway: an OpenAI-compatible door to an engine, in a process of its own. Loaded only when it runs."""
