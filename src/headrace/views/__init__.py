"""View versions, and what is to come: replay, batch and merge, diff, reconcile."""
