"""Sockets of our own: what arrives is gathered in a `Pool`, bounded, and taken from there in large pieces."""
