"""Where views are served from. `base` is the contract; `sqlite` keeps one file per view version."""
