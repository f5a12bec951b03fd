"""Identities and rights: keys, roles, the owner's own key, and the user behind a local connection. Knows no log and
no HTTP."""
