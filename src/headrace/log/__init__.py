"""The unified log: topics, partitions, offsets. `base` is its contract; `local` keeps it in Arrow files."""
