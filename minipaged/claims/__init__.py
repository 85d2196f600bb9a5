"""Every claim made for paged attention beside the number measured here: ``minipaged reproduce``.

The engine's own pool, tables and scheduler are what is measured, never a copy of them.
"""
