"""What a collector does to events before they are stored: enrich, validate, keep private. `base.py` is the door."""
