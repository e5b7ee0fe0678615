"""Services with probes: applications that host entities themselves, and a front end beside its host.

`with_starlette` and `with_fastapi` are runners themselves. `front` only calls (`hosting=False`), and `host`
is the program that owns the shards; the two scale and roll apart.
"""
