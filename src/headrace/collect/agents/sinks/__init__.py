"""Where an agent's events go."""
