"""The claims of the document that Pagedeck began with, measured on this machine: ``pagedeck bench claims``."""
