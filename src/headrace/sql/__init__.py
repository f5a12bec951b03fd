"""Text → tokens → AST → analysed → plan. Pure: no Spark, no I/O, no clock."""
