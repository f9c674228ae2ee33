"""Functions of torch in Python that are one node as a whole, and the objects that they take besides tensors."""
from __future__ import annotations

FUNCTIONS = {
    "torch.distributed.tensor._api": frozenset({
        "DTensor.from_local", "DTensor.to_local", "DTensor.redistribute", "DTensor.full_tensor"}),
    "torch.nested": frozenset({
        "nested_tensor", "as_nested_tensor", "nested_tensor_from_jagged", "narrow", "masked_select"}),
    "torch.masked._ops": frozenset({"_combine_input_and_mask"}),     # makes a class at each call
    "torch.distributed._functional_collectives": frozenset({
        "all_reduce", "all_gather_tensor", "reduce_scatter_tensor", "all_to_all_single", "broadcast", "wait_tensor",
        "all_gather_tensor_autograd", "reduce_scatter_tensor_autograd", "all_to_all_single_autograd"}),
}
# Questions whose answers follow from a mesh, which does not change: capture asks them.
OF_MESHES = {
    "torch.distributed.device_mesh": frozenset("DeviceMesh." + name for name in (
        "__getitem__", "__eq__", "__hash__", "__repr__", "get_group", "get_all_groups", "size", "get_rank",
        "get_local_rank", "get_coordinate")),
}
HELD = ("torch.distributed", "torch._C._distributed_c10d")      # modules of the classes of meshes and groups
