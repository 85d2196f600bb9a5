"""Products of rows with weight matrices: a plain form to read, and two compiled for a CPU.

All three forms have one interface: ``form.linear(weight)`` and ``form.gated(weight)`` make a
product, ``product(x)`` computes it, and ``product.add_to(out, x)`` adds it to a residual stream.
"""

from .plain import PLAIN, Form, Product, form_for

__all__ = ["PLAIN", "Form", "Product", "form_for"]
