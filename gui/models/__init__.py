"""Models: installed ones and downloads."""
