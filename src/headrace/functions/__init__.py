"""Python functions for SQL: how they are written, described, loaded and called.

`decorator` is what users import. A file is described once (`describe`), by running it; from then on its text and its
descriptions are data that the catalog keeps, and it runs again only where its functions are called: in Spark's workers
(`direct`), or in a process beside the server (`host`), which must outlive whatever a function does.
"""
