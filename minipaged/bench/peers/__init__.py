"""One file per engine or block manager that can be measured; each runs in a process of its own.

``serve.py`` runs there, by its path, in whatever Python has the peer: neither it nor the adapters
import anything of minipaged or of each other, and an adapter imports its peer only when made.
What an engine must be able to do is written down once, in ``contract.py``.
"""
