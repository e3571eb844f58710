"""Model cards in Markdown."""
