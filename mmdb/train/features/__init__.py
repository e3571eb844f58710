"""Feature transfer: frozen layers computed once, and many heads trained on what they return."""
