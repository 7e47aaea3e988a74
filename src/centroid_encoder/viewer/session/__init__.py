"""What is shown and chosen, without Qt: the state that panels observe."""
