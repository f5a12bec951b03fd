"""A buffer on disk in front of a log that is away."""
