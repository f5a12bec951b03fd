"""The log in Arrow files on this machine: one owner writes, anyone reads (docs/log-format.md)."""
