"""A rate limiter for the whole cluster: one token bucket for each API key, whichever pod is asked.

`python -m examples.rate_limiter` shows it on a server of its own. `bucket.py` is what to copy.
"""
