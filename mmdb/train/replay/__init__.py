"""Models out of what made them: saved candidates, recipes, and what replays them."""
