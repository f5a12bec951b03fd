"""Where an agent's events come from."""
