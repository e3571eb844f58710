"""Curves through measured points. Pure; one kind of curve a file.

Every curve is defined on few and on noisy points, never falls as the size grows, and says how much
its points vary and how far it misses them.
"""
