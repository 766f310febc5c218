"""From a model's name to tokens: loading, the forward pass, sampling, text."""
