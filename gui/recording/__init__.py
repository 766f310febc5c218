"""Recordings: the file, writing and replaying one, exports."""
