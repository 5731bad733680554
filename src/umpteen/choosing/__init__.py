"""Which method, from the data, the memory and a budget of time."""
