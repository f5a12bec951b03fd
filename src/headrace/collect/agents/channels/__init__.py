"""Where an agent's events wait."""
