"""Ways out: pull and push queries, feeds."""
