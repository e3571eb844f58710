"""What a model's training step does, operation by operation, and what that costs. Pure.

Nothing is allocated: sizes come from a flow, which is recorded on the meta device.
"""
