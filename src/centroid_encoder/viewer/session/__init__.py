"""The state that panels observe: what is chosen and what is shown, without Qt."""
