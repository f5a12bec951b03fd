"""The `headrace` command: arguments and printing only."""
