"""The symbolic interpreter: the machine, the handlers of instructions, and what is known of builtins and of torch.

Importing the package fills its tables.
"""
# isort: skip_file
from sot.interpreter import opcodes, returns  # noqa: F401
from sot.interpreter.builtins import classes  # noqa: F401
from sot.interpreter.control_flow import higher_order, operators  # noqa: F401
from sot.interpreter.effects import catch_warnings, contexts, decimals, locks, logging, output  # noqa: F401
from sot.interpreter.effects import print_options, warnings  # noqa: F401
from sot.interpreter import namespaces, wrapping  # noqa: F401
from sot.interpreter.objects import calls, descriptors, introspection, library_classes, tensor_attributes  # noqa: F401
from sot.interpreter.torch_ops.drawing import random_state  # noqa: F401
from sot.interpreter.torch_ops.constructors import buffers, capsules, legacy, specimens  # noqa: F401
from sot.interpreter.torch_ops import (  # noqa: F401
    autograd,
    checkpoints,
    function_transforms,
    futures,
    gradients,
    overrides,
    subclasses,
    torch_handlers,
)
from sot.interpreter.torch_ops.hooks import element_functions, module_hooks, saved_tensors, tensor_hooks  # noqa: F401
from sot.interpreter.torch_ops.data_sizes import storages  # noqa: F401
from sot.interpreter.torch_ops.wrappers import (  # noqa: F401
    compiled,
    nested_attention,
    padded_encoders,
    process_groups,
    scripted,
)
from sot.polyfills import torch_code  # noqa: F401
from sot.interpreter import machine  # noqa: F401
from sot.interpreter.builtins.containers import copies, hosted  # noqa: F401   it takes what output leaves
from sot.interpreter.torch_ops.constructors import pickles  # noqa: F401
from sot.interpreter.builtins import impure  # noqa: F401   imported last: it takes what no other handler takes
