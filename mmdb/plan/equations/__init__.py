"""One formula, one function: what a hop, an exchange or a cut takes. Numbers and arrays alone.

Every function says what goes in, in which unit, and where the formula is from.
"""
