"""The desktop app. Talks to an engine through :mod:`pagedeck.ipc` only."""
