"""The block map: pools as they live, and what can be laid over them."""
