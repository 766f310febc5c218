"""The KV cache: blocks, tables, prefixes, tiers, and the tensors behind them."""
