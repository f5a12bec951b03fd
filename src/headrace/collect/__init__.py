"""Ways in. `base` is what every collector promises."""
