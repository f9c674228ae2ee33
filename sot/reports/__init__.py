"""Reports: one data model (``model``), filled from records (``build``), and its views.

``lines`` is the text of ``explain`` and ``SOT_LOG``; ``advice`` says what to change first; ``views`` has the page, the
summary on the terminal, the trace file and the comparison of two reports. JSON comes from the model itself.
"""
