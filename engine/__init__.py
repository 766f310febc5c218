"""The serving engine: model, KV cache, scheduler, step loop, service process."""
