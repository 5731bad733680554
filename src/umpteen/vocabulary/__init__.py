"""Controlled vocabularies: concepts with names in several languages, and what stands above and beside them."""
