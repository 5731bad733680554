"""What each family of models stores and how it scores."""
