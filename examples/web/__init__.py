"""Services with probes: a Starlette and a FastAPI application that are members of a cluster."""
