"""What each operation of torch does: one rule for each."""
