"""Protocols that existing clients speak, over HTTP: requests in, the answers those clients expect out."""
