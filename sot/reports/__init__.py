"""Reports: one data model (``model``), filled from records (``build``), and its views.

``lines`` is the text of ``explain`` and ``SOT_LOG``, ``terminal`` a summary in colour, ``page`` one HTML file without
dependencies; JSON comes from the model itself. ``compare`` shows the differences between two reports.
"""
