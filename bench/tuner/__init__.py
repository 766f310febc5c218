"""The search for the settings that suit a load best: ``pagedeck tune``."""
