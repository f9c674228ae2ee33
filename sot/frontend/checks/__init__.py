"""``sot check``: what a run may not exceed (``limits``), the figures that it must reach (``baseline``), and its
findings for editors and code hosts (``sarif``).
"""
