"""Checking mode: runs plain Python beside captured code, on copies of the inputs, and reports every difference.

``SOT_CHECK=1 python train.py``, or ``to_static(f, check=0.1)`` for a tenth of the calls. Each graph is compared with
its operations run one by one, and each call of a translated function with the function itself. Effects outside of the
arguments, except output, happen twice. So this is for finding a wrong result, not for production.
"""
