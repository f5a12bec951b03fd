"""What every log does with a batch before it writes it: check it, place its rows, keep what tasks have staged."""
