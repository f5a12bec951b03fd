"""From bytes to columns and back."""
