"""Tickets: events taken now and written soon, with the result to be fetched, followed or posted."""
