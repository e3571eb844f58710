"""How good a model's answers are, and why they are as they are. Pure: rows and models come in."""
