"""Pages, tables and lines of output about jobs, as commands print them.

No command lives here, and nothing here calls a controller.
"""
