"""Operations with a float that may differ from call to call.

``rules.py`` says which operations take a tensor in place of the number, and what a rule for another one is. The other
files have the rules by subject: ``normalization.py``, ``activations.py``, ``losses.py``, ``products.py``,
``drawing.py`` (random numbers) and ``others.py``. ``operators.py`` finds the rule of an operation, also of an operator
that the program calls itself.
"""
from sot.graph.number_rules import activations, drawing, losses, normalization, others, products
from sot.graph.number_rules.operators import rule_of
from sot.graph.number_rules.rules import Rule, is_of_lists, is_operand, knows_nan, operation_of, takes_tensors

__all__ = ["Rule", "activations", "drawing", "is_of_lists", "is_operand", "knows_nan", "losses", "normalization",
           "operation_of", "others", "products", "rule_of", "takes_tensors"]
