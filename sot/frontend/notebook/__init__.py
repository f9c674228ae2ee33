"""Notebooks: the magic ``%sot``. Reports and explanations show themselves there as pages."""
