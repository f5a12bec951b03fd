"""The ASGI application: routes only."""
