"""Models that fully_shard has divided, for two processes: python -m torch.distributed.run ... BACKEND FOLDER

Each rank writes, for each kind of model and program, whether losses, results and weights are plain Python's, and its
graphs and breaks.
"""
import contextlib
import warnings

import torch
import torch.distributed as dist
import torch.nn.functional as F
from distributed_programs import row_of, write_rows
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.checkpoint import checkpoint

import sot

# Of the model:
PRECISE, CHECKPOINTED, CHECKPOINTS, TIED = "bfloat16", "checkpoints inside", "checkpoints around", "tied weights"
KEEPS, GROUP, ON_TWO = "kept whole", "a group", "with tensor parallelism"
# Of the forward pass:
TWICE, SHORT, BREAKS, BESIDE, DICT = "a block twice", "a block left out", "a break", "a result beside", "a dict"
# Of the program:
STEP, EVAL, LATER, EARLY, READ = "a whole step", "without gradients", "summed later", "got early", "state_dict"
ALONE = PRECISE, CHECKPOINTED, CHECKPOINTS, TIED, KEEPS, GROUP, ON_TWO, TWICE, BREAKS, BESIDE, DICT, EVAL, LATER
PROGRAMS = [(), *((kind,) for kind in (*ALONE, EARLY, READ, STEP)), (GROUP, SHORT), (STEP, GROUP), (STEP, GROUP, SHORT),
            (STEP, PRECISE), (STEP, TIED), (STEP, ON_TWO), (STEP, CHECKPOINTS, GROUP)]


class Block(nn.Module):
    def __init__(self, kinds):
        super().__init__()
        self.kinds, self.norm, self.up, self.down = kinds, nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def inner(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))

    def forward(self, x, more=None):
        if BREAKS in self.kinds:
            sot.graph_break()
        y = checkpoint(self.inner, x, use_reentrant=False) if CHECKPOINTED in self.kinds else self.inner(x)
        return y if more is None else y * more["scale"]


class Model(nn.Module):
    def __init__(self, kinds):
        super().__init__()
        self.kinds, self.embedding = kinds, nn.Embedding(11, 8)
        self.blocks, self.head = nn.ModuleList(Block(kinds) for _ in range(3)), nn.Linear(8, 11, bias=False)
        if TIED in kinds:
            self.head.weight = self.embedding.weight

    def forward(self, x):
        y = self.embedding(x)
        for block in self.blocks[1 if SHORT in self.kinds else 0:]:
            if CHECKPOINTS in self.kinds:
                y = checkpoint(block, y, use_reentrant=False)
            else:
                y = block(y, more={"scale": y.mean()}) if DICT in self.kinds else block(y)
        if TWICE in self.kinds:
            y = self.blocks[0](y)
        return (self.head(y), y.square().mean()) if BESIDE in self.kinds else self.head(y)


def divided(kinds):
    torch.manual_seed(0)
    model, ranks = Model(kinds), dist.get_world_size()
    mesh, options = init_device_mesh("cpu", (ranks,)), {}
    if ON_TWO in kinds:
        grid = init_device_mesh("cpu", (1, ranks), mesh_dim_names=("dp", "tp"))
        for block in model.blocks:
            parallelize_module(block, grid["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        mesh = grid["dp"]
    if KEEPS in kinds:
        options["reshard_after_forward"] = False
    if PRECISE in kinds:
        options["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    in_group = 2 if GROUP in kinds else 0
    if in_group:
        fully_shard([*model.blocks[:in_group]], mesh=mesh, **options)
    for block in model.blocks[in_group:]:
        fully_shard(block, mesh=mesh, **options)
    if PRECISE in kinds:
        options["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, output_dtype=torch.float32)
    fully_shard(model, mesh=mesh, **options)
    if EARLY in kinds:
        for block, after in zip(model.blocks, model.blocks[1:], strict=False):
            block.set_modules_to_forward_prefetch([after])
    return model


def loss_of(result, x):
    beside = 0
    if isinstance(result, tuple):
        result, beside = result
    return F.cross_entropy(result.flatten(0, 1), x.flatten()) + beside


def run(kinds, translate):
    model = divided(kinds)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

    def step(x):
        loss = loss_of(model(x), x)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()
    call, found = translate(step if STEP in kinds else model), []
    for i in range(5):
        x = torch.randint(0, 11, (2, 4), generator=torch.Generator().manual_seed(10 * i + dist.get_rank()))
        if READ in kinds:
            model.state_dict()
        if EARLY in kinds and i == 3:
            model.blocks[1].unshard()
        if LATER in kinds:
            model.set_requires_gradient_sync(i % 2 == 1)
        with torch.no_grad() if EVAL in kinds and i % 2 else contextlib.nullcontext():
            result = call(x)
        if STEP not in kinds and not (EVAL in kinds and i % 2):
            loss_of(result, x).backward()
            if not (LATER in kinds and i % 2 == 0):
                optimizer.step()
                optimizer.zero_grad()
        found.append(result)
    return found, [getattr(p, "_local_tensor", p).detach() for p in model.parameters()]


def rows_of(backend):
    warnings.simplefilter("ignore")
    return {", ".join(kinds): row_of(lambda translate, kinds=kinds: run(kinds, translate), backend)
            for kinds in PROGRAMS}


if __name__ == "__main__":
    write_rows(rows_of)
