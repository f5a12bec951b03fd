"""Syslog: `parse` reads lines, `framing` tells them apart on a connection, `listen` takes them from the network."""
