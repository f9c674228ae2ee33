"""Reports: one data model (``model``), filled from records (``build``), and its views.

``lines`` is the text that ``explain`` and ``SOT_LOG`` print, ``terminal`` a summary in colour, ``page`` one HTML
file that needs nothing else, and JSON comes from the model itself. ``compare`` tells two reports apart.
"""
